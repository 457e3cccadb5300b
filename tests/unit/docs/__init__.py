"""Tests that the documents tell the truth."""
