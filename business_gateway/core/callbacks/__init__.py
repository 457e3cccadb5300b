"""Callbacks: what the platform tells of orders, and the one rule that projects it."""
