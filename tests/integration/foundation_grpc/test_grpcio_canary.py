"""A canary for the pinned grpcio: some of its versions never free an abandoned call."""

import asyncio
import gc
import weakref

from google.protobuf.wrappers_pb2 import StringValue

from tests.integration.foundation_grpc.echo import Caller, served


async def abandon(caller: Caller) -> "weakref.ref[object]":
    """Open a stream, exchange one message on it, and drop it without a cancel."""
    stream = caller.method("session", "stream_stream")()
    await stream.write(StringValue(value="a"))
    assert (await stream.read()).value == "a"
    return weakref.ref(stream)


async def test_abandoned_calls_are_freed() -> None:
    """Streams dropped without a cancel are collected, so a slip of ours is no leak for ever."""
    async with served() as one:
        abandoned = [await abandon(one.caller) for _ in range(20)]
        async with asyncio.timeout(20.0):
            while any(call() is not None for call in abandoned):
                gc.collect()
                # The answer to a fresh call gives gRPC's own tasks their turns.
                await one.caller.unary()(StringValue(value="b"), timeout=10.0)
