"""Looking inside: what attention does, and later what a representation holds."""
