"""One Transformer: token ids to hidden states."""
