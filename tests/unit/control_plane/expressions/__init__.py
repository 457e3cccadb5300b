"""Unit tests: expressions."""
