"""What the gateway calls: its database, the object store, the control plane."""
