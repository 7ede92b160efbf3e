"""``warmstart fit``."""
