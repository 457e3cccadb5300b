"""What the gateway decides, free of transports and databases."""
