"""Integration tests of the control plane: engine."""
