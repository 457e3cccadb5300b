"""SQL of the node agent's journal."""
