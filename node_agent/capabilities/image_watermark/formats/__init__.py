"""One module for each file format: taken apart, painted, and put together again."""
