"""Studies: what is inside a model. One file a command."""
