"""foundation/grpc against a real grpc.aio server on loopback."""
