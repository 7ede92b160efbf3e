"""commands.answers."""
