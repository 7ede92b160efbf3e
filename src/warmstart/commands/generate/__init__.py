"""commands.generate."""
