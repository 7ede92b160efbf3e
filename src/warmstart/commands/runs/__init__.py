"""commands.runs."""
