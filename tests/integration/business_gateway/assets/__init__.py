"""Integration tests of the gateway: assets."""
