"""studies.ablate."""
