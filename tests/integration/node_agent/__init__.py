"""The node agent against real servers and processes."""
