"""Unit tests: schedules."""
