"""``warmstart evaluate``."""
