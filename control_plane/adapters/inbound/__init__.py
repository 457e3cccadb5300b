"""What calls the control plane: gRPC services, and the loops that drive it on."""
