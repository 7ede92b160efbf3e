"""Models in memory and as saved folders: a network with its tokenizer, a baseline that has learned, and a stack of these."""
