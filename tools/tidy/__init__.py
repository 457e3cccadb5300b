"""The style guide as a check: what linters do not know about this house, with a reason each."""
