"""The process host with real children and a real object store."""
