"""Measures of models, which studies report."""
