"""Integration tests: the business gateway."""
