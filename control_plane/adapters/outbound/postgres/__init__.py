"""Stores on PostgreSQL; their statements are in control_plane/sql/queries."""
