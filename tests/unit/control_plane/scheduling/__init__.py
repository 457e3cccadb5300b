"""Unit tests: scheduling."""
