"""Resources: who may read and write which bytes, and what becomes of them."""
