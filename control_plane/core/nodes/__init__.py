"""Node sessions and leases: which node holds which attempt, and for how long."""
