"""Minimal pairs of grammar: whether the right sentence scores higher."""
