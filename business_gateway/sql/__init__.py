"""The gateway's database: migrations, and named queries."""
