"""Text on pictures: every form of picture, every refusal."""
