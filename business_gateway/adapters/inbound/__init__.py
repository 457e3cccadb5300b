"""Who calls the gateway: REST, gRPC, loops."""
