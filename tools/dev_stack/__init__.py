"""PostgreSQL, NATS and S3 as children of this process, from pinned wheels, under one folder."""

from tools.dev_stack.object_store import ObjectStoreAccess
from tools.dev_stack.server import Server
from tools.dev_stack.stack import Stack, StackConfig, running_stack

__all__ = ["ObjectStoreAccess", "Server", "Stack", "StackConfig", "running_stack"]
