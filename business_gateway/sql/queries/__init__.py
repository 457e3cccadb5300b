"""Named queries, a file for each area."""
