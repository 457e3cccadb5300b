"""Named statements on the journal."""
