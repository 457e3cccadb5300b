"""What authors of capabilities test with."""
