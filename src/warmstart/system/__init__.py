"""The machine and the system below us: files, locks, signals, processes, cores, the console. Knows nothing of models or runs."""
