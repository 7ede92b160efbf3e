"""commands.pretrain."""
