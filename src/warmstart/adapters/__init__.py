"""Modules inserted into a finished backbone. A new adapter is one file and one row in ``ADAPTERS``, in ``registry.py``."""
