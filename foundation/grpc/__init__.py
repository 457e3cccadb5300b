"""gRPC set-up that all processes share: servers, channels, statuses and interceptors."""
