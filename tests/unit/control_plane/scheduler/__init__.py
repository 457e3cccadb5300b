"""Unit tests: the scheduler's use case and its rules at dispatch."""
