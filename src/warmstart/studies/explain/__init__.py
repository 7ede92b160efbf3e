"""studies.explain."""
