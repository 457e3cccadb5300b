"""Grants: short access to a business system's bytes, and the commit of what was written."""
