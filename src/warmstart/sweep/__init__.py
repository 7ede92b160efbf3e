"""Many independent training runs, compared."""
