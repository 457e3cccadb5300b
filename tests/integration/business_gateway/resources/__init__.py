"""Integration tests of the gateway: resources."""
