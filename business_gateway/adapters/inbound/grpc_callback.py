"""Callbacks over gRPC: the very bytes that were signed, the signature in the metadata."""

from typing import Final

from business_gateway.core.callbacks.application import CallbackIntake
from foundation.failpoints import failpoint
from foundation.grpc.context import ServicerContext
from foundation.grpc.server import GrpcService
from foundation.signatures import SIGNATURE_HEADER
from tdp.callback.v1 import callback_service_pb2 as pb
from tdp.callback.v1 import callback_service_pb2_grpc as pb_grpc

SERVICE_NAME: Final = pb.DESCRIPTOR.services_by_name["CallbackService"].full_name
# The signature speaks for the sender: the service's methods need no bearer token.
CALLBACK_METHODS: Final = f"/{SERVICE_NAME}/"


class CallbackServicer(pb_grpc.CallbackServiceServicer):
    """Translates between the contract and the intake."""

    def __init__(self, intake: CallbackIntake) -> None:
        self._intake = intake

    async def DeliverEvent(
        self, request: pb.DeliverEventRequest, context: ServicerContext
    ) -> pb.DeliverEventResponse:
        duplicate = await self._intake.receive(_signature(context), request.body)
        await failpoint("gateway.callback.reply.before")
        return pb.DeliverEventResponse(duplicate=duplicate)


def callback_service(servicer: CallbackServicer) -> GrpcService:
    """Return the service for a server."""
    return GrpcService(
        SERVICE_NAME,
        lambda server: pb_grpc.add_CallbackServiceServicer_to_server(servicer, server),
    )


def _signature(context: ServicerContext) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == SIGNATURE_HEADER and isinstance(value, str):
            return value
    return None
