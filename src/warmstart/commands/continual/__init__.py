"""commands.continual."""
