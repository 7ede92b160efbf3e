"""What every head attends to, in one text and in a corpus."""
