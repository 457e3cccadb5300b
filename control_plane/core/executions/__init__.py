"""Executions: what happens to one run of a task, its steps and their attempts."""
