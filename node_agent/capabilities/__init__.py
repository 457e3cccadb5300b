"""Capabilities that ship with the node agent."""
