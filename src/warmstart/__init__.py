"""warmstart: pretrain on your text, adapt to your labels, and know what transfer bought you."""

__version__ = "0.1.0"
