"""Unit tests: executions."""
