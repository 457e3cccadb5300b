"""What the node agent's core reaches out to."""
