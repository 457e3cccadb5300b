"""Keeps schema.sql, the database as a whole, equal to the migrations that make it."""
