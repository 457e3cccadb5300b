"""The type of a servicer's context, for annotations: the library's is not subscriptable."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import grpc

    ServicerContext = grpc.aio.ServicerContext[Any, Any]
else:
    ServicerContext = Any
