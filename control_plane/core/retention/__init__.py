"""Retention: what is over for long enough is removed, a little at a time."""
