"""Unit tests of the session and lease rules."""
