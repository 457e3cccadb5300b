"""Messages between the agent and a child: JSON objects, each behind its length in bytes."""

import asyncio
import json
import socket
import struct
from typing import Any, Final, Self

from foundation.errors import ErrorCode, TdpError

FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")

Message = dict[str, Any]


class FrameTooLargeError(TdpError):
    """A message over the bound; it was not written, so the connection is still good."""

    reason = "MESSAGE_TOO_LARGE"
    code = ErrorCode.RESOURCE_EXHAUSTED


class FrameBrokenError(TdpError):
    """The other side sent what is no message; the connection cannot be used any more."""

    reason = "MESSAGE_BROKEN"


class Frames:
    """One end of the connection; one reader, any number of writers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take an open stream."""
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Take one end of a socket pair."""
        end.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        reader, writer = await asyncio.open_unix_connection(sock=end)
        return cls(reader, writer)

    async def read(self) -> Message | None:
        """Return the next message, None at the end of the connection.

        Raises:
            FrameBrokenError: the length is over the bound, or the text is no JSON object.
        """
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > FRAME_BYTES_MAX:
                raise FrameBrokenError(f"a message announces {length} bytes")
            text = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return _decoded(text)

    async def send(self, message: Message) -> None:
        """Write a message whole; a connection that has ended swallows it.

        Raises:
            FrameTooLargeError: it is over the bound.
        """
        text = json.dumps(message).encode()
        if len(text) > FRAME_BYTES_MAX:
            raise FrameTooLargeError(
                f"a message of kind {message.get('kind')!r} has {len(text)} bytes, over the limit"
                f" of {FRAME_BYTES_MAX}; ask for less at a time"
            )
        self._writer.write(_LENGTH.pack(len(text)) + text)
        try:
            await self._writer.drain()
        except ConnectionError:
            # The reader of this side sees the end, and says what it means.
            return

    def close(self) -> None:
        """Close this end; idempotent."""
        self._writer.close()


def _decoded(text: bytes) -> Message:
    try:
        message = json.loads(text)
    except ValueError as error:
        raise FrameBrokenError(f"a message is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameBrokenError(f"a message is a {type(message).__name__}, not an object")
    return message
