"""Integration tests of the gateway: rest."""
