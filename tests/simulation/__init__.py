"""Deterministic simulations of the rules that no single test can show."""
