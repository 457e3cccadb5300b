"""Orders: what clients ask for and what became of it, in business terms."""
