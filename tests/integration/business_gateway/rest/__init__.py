"""Integration tests of the gateway: REST over real servers."""
