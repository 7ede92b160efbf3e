"""``warmstart runs``."""
