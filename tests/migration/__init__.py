"""Migrations of the processes' databases."""
