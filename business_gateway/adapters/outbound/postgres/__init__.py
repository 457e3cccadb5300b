"""The gateway's stores on PostgreSQL."""
