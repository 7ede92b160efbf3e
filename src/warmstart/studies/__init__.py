"""Studies: what is inside a model."""
