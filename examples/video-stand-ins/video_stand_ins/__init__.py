"""Stand-ins for the capabilities of the video review."""
