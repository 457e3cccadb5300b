"""Unit tests of the node agent."""
