"""commands.race."""
