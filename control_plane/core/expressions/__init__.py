"""Expressions in workflow definitions: their syntax around CEL, and the port to a CEL runtime."""
