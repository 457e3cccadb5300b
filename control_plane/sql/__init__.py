"""The control plane's database: migrations, and named queries."""
