"""The business gateway: the entrance for orders, and the picture of their progress."""
