"""Schemes by name. A new one is a function, a row in ``SCHEMES``, in ``registry.py``, and its options, if it has any."""
