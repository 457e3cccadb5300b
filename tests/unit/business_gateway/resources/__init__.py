"""Unit tests of the gateway."""
