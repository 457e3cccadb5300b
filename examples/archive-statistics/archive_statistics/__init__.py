"""The capability archive.statistics."""
