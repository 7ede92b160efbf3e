"""Models of other programs, read and written."""
