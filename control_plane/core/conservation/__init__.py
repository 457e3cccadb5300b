"""Conservation: what was accepted is compared with what is known of it, over a window."""
