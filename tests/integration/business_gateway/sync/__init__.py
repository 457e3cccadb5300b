"""Tests of how the gateway keeps step with the platform, on real servers."""
