"""How the node agent reaches the world, one adapter for each port."""
