"""Build odd files byte by byte."""
