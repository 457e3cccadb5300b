"""Integration tests: schedules."""
