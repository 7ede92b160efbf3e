"""The same text learned by several pretraining objectives."""
