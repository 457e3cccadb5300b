"""What the control plane calls: stores, message bus, business systems, libraries."""
