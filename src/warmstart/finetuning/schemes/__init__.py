"""Schemes by name. A new one is a function, a row in ``SCHEMES``, in ``registry.py``; options, if it has any, are beside it."""
