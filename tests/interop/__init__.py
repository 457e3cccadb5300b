"""Clients that share no code with the platform: grpcurl, buf curl, and Node."""
