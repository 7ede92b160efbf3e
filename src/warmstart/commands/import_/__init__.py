"""``warmstart import``."""
