"""studies.map."""
