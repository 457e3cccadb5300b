"""Unit tests of the capability archive.clean."""
