"""Schedules: tasks that the calendar creates."""
