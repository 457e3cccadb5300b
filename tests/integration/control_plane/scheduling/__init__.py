"""Integration tests of the control plane: scheduling."""
