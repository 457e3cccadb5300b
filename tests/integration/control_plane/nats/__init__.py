"""Integration tests of the control plane: nats."""
