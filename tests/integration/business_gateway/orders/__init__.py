"""Integration tests of the gateway: orders."""
