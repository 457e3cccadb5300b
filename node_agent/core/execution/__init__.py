"""Running attempts: what the core orders, and what a host of capabilities answers."""
