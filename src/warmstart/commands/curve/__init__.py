"""``warmstart curve``."""
