"""The authoring of capabilities."""
