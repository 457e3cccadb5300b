"""Callbacks: how execution events reach the business system that asked for the work."""
