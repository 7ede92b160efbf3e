"""The version of the package, which files that are saved name. It imports nothing, so that whoever needs it meets no circle."""

__version__ = "0.3.0"
