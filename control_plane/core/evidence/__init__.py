"""Evidence: the ladder of durable facts of one execution, and what disturbed it."""
