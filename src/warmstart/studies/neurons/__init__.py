"""studies.neurons."""
