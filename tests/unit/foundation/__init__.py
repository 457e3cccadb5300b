"""Unit tests of foundation/."""
