"""Unit tests: engine."""
