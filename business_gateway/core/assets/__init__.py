"""Source files of orders: how they come in and when they may be used."""
