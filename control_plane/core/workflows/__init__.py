"""Workflow definitions: their language, their checks, and the frozen snapshots made of them."""
