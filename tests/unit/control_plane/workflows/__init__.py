"""Unit tests: workflows."""
