"""Unit tests: the control plane."""
