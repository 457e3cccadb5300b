"""The guide for authors of capabilities, followed to the letter."""
