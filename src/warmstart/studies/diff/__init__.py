"""studies.diff."""
