"""Nodes against real PostgreSQL and real gRPC."""
