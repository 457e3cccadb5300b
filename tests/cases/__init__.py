"""Example files with the outcome each must have, and what builds more of them."""
