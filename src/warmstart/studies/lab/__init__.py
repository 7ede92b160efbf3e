"""Attention with keys and queries built by hand, compared with closed forms."""
