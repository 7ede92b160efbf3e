"""What every layer encodes, by probes with controls."""
