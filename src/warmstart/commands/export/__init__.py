"""commands.export."""
