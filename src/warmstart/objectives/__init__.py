"""Pretraining objectives, as pure functions. A new objective is one file and one row in ``OBJECTIVES``, in ``registry.py``."""
