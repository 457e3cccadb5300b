"""The one outbox pump: claims rows, publishes them outside the transaction, marks them."""
