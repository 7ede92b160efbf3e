"""commands.curve."""
