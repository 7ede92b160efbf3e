"""The HTTP API of ``warmstart serve``."""
