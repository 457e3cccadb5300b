"""Metrics for Prometheus: the endpoint, and what all processes tell of their outboxes."""
