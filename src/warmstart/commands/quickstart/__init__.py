"""commands.quickstart."""
