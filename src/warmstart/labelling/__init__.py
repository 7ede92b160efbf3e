"""Labelling texts in the browser: the project on disk, the choice of texts, the model that learns, and what the labels prove."""
