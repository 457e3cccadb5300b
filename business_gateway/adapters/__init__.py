"""Adapters: the outside, translated."""
