"""commands.adapt."""
