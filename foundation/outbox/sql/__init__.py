"""Statements of the outbox stores."""
