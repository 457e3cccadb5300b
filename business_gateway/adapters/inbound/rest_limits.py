"""Bounds on request bodies, checked before and while they are read."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from business_gateway.adapters.inbound.rest_problems import BodyTooLargeError, problem_response


class BodyLimits:
    """ASGI middleware: refuses a body over its route's bound, announced or not."""

    def __init__(self, app: ASGIApp, *, default_bytes_max: int, by_path: Mapping[str, int]) -> None:
        self._app = app
        self._default_bytes_max = default_bytes_max
        self._by_path = dict(by_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with a counted body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bytes_max = self._by_path.get(scope["path"], self._default_bytes_max)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > bytes_max:
            await problem_response(_too_large(bytes_max), scope["path"])(scope, receive, send)
            return
        await self._app(scope, _counted(receive, bytes_max), send)


def _counted(receive: Receive, bytes_max: int) -> Receive:
    received_bytes = 0

    async def counted() -> Message:
        nonlocal received_bytes
        message = await receive()
        if message["type"] == "http.request":
            received_bytes += len(message.get("body", b""))
            if received_bytes > bytes_max:
                raise _too_large(bytes_max)
        return message

    return counted


def _too_large(bytes_max: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body has more than {bytes_max} bytes: send less",
        metadata={"size_bytes_max": str(bytes_max)},
    )
