"""Generates the Python package `tdp` in protos/gen from the contracts in protos/tdp."""
