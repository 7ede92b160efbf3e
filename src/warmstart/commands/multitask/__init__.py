"""commands.multitask."""
