"""``warmstart race``."""
