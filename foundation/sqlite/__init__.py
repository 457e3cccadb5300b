"""SQLite: one connection on one thread, whole transactions, typed errors."""
