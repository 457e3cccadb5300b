"""The node agent's own rules, free of transports and stores."""
