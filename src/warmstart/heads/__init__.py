"""Heads: modules that map hidden states to outputs. A new head is one class and one row in ``HEADS``, in ``registry.py``."""
