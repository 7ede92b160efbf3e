"""The folder of a run: its settings, how far it is, what of it is finished, and what its result depends on."""
