"""What a user does, from end to end: the only places where the parts meet."""
