"""Errors as RFC 9457 problems, each of a type that can be opened and read."""

import html
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from business_gateway.core.errors import GatewayError
from foundation.errors import (
    ErrorCode,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    MessageTooLargeError,
    NotFoundError,
    TdpError,
)
from foundation.ids import IdSource

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
PROBLEMS_PATH: Final = "/problems"
_log = structlog.stdlib.get_logger(__name__)

# By reason where a request's own standing decides, else by code.
_STATUS_OF_REASON: Final[Mapping[str, int]] = {
    "IDEMPOTENCY_KEY_MISSING": 400,
    "IDEMPOTENCY_KEY_MALFORMED": 400,
    "BODY_MALFORMED": 400,
    "PAGE_CURSOR_INVALID": 400,
    "METHOD_NOT_ALLOWED": 405,
}
_STATUS_OF_CODE: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID_ARGUMENT: 422,
    ErrorCode.OUT_OF_RANGE: 400,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.FAILED_PRECONDITION: 409,
    ErrorCode.ABORTED: 409,
    ErrorCode.RESOURCE_EXHAUSTED: 429,
    ErrorCode.CANCELLED: 499,
    ErrorCode.UNIMPLEMENTED: 501,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.DEADLINE_EXCEEDED: 504,
}
_RETRY_AFTER_STATUSES: Final = frozenset({409, 429, 503, 504})


class BodyTooLargeError(GatewayError, MessageTooLargeError):
    """The request's body has more bytes than this route takes; send less."""

    reason = "BODY_TOO_LARGE"


class BodyMalformedError(GatewayError, InvalidArgumentError):
    """The request's body is not the JSON that this route takes."""

    reason = "BODY_MALFORMED"


class RouteNotFoundError(GatewayError, NotFoundError):
    """There is nothing at this path; /docs lists every route."""

    reason = "ROUTE_NOT_FOUND"


class MethodNotAllowedError(GatewayError, InvalidArgumentError):
    """This path does not take this method; /docs lists every route."""

    reason = "METHOD_NOT_ALLOWED"


def http_status(error: TdpError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, MessageTooLargeError):
        return 413
    return _STATUS_OF_REASON.get(error.reason) or _STATUS_OF_CODE.get(error.code, 500)


def problem_response(error: TdpError, instance: str = "") -> Response:
    """Return the problem document of an error, with Retry-After where a retry helps."""
    status = http_status(error)
    kind = type(error).reason
    body: dict[str, object] = {
        "type": f"{PROBLEMS_PATH}/{slug(kind)}",
        "title": _title(kind),
        "status": status,
        "detail": error.message,
        "reason": error.reason,
        "retryable": error.retryable,
        **({"instance": instance} if instance else {}),
        **({"metadata": error.metadata} if error.metadata else {}),
        **({"errors": _pointers(error.field_violations)} if error.field_violations else {}),
    }
    headers = _headers(error, status)
    return JSONResponse(body, status, headers, media_type=PROBLEM_MEDIA_TYPE)


def install_problems(app: FastAPI, ids: IdSource) -> None:
    """Make every failure of a route a problem, and the types readable."""

    async def of_tdp(request: Request, error: Exception) -> Response:
        assert isinstance(error, TdpError)
        return problem_response(error, request.url.path)

    async def of_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem_response(_meant_by_validation(error), request.url.path)

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem_response(_meant_by_http(error), request.url.path)

    async def of_unexpected(request: Request, error: Exception) -> Response:
        error_id = ids.new_id()
        _log.error(
            "request_failed_unexpectedly",
            path=request.url.path,
            error_id=error_id,
            exc_info=error,
        )
        meant = InternalError(
            f"internal error {error_id}: report this id to the operator, whose log explains it",
            metadata={"error_id": error_id},
        )
        return problem_response(meant, request.url.path)

    app.add_exception_handler(TdpError, of_tdp)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_unexpected)
    app.add_api_route(
        f"{PROBLEMS_PATH}/{{problem_slug}}",
        _problem_page,
        methods=["GET"],
        response_class=HTMLResponse,
        include_in_schema=False,
    )


def slug(reason: str) -> str:
    """Return a reason as it stands in a URL."""
    return reason.lower().replace("_", "-")


def known_problems() -> dict[str, type[TdpError]]:
    """Return every kind of error that the process knows, by its slug."""
    return {slug(kind.reason): kind for kind in _kinds(TdpError)}


async def _problem_page(problem_slug: str) -> HTMLResponse:
    kind = known_problems().get(problem_slug)
    if kind is None:
        raise RouteNotFoundError(f"there is no problem type {problem_slug[:100]!r}")
    title = html.escape(_title(kind.reason))
    meaning = html.escape(inspect.cleandoc(kind.__doc__ or ""))
    retry = "The same request may succeed later." if kind.retryable else "A retry does not help."
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<h1>{title}</h1><p>{meaning}</p><p>{retry}</p><p><code>{kind.reason}</code></p></html>"
    )


def _kinds(kind: type[TdpError]) -> Iterator[type[TdpError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def _title(reason: str) -> str:
    return reason.replace("_", " ").capitalize()


def _headers(error: TdpError, status: int) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if status == 401:  # noqa: PLR2004 - the status that demands this header
        headers["WWW-Authenticate"] = "Bearer"
    if status in _RETRY_AFTER_STATUSES and error.retryable:
        headers["Retry-After"] = str(max(1, round(error.retry_delay_s or 1.0)))
    return headers


def _pointers(violations: Sequence[FieldViolation]) -> list[dict[str, str]]:
    return [
        {
            "pointer": "/" + one.field.replace("~", "~0").replace("/", "~1").replace(".", "/"),
            "detail": one.description,
            **({"reason": one.reason} if one.reason else {}),
        }
        for one in violations
    ]


def _meant_by_validation(error: RequestValidationError) -> TdpError:
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        return BodyMalformedError("the body is not JSON: send a JSON object")
    violations = [
        FieldViolation(_field(one["loc"]), str(one["msg"]), "FIELD_RULE") for one in found
    ]
    return InvalidArgumentError.of_fields(violations)


def _field(location: Sequence[object]) -> str:
    """Return the path of a field without where it was found (body, query, header)."""
    return ".".join(str(one) for one in location[1:]) or str(location[0])


def _meant_by_http(error: HTTPException) -> TdpError:
    # FastAPI answers a failure while it reads the body itself; what failed is behind it.
    if isinstance(error.__cause__, TdpError):
        return error.__cause__
    if error.status_code == 404:  # noqa: PLR2004 - a path that no route has
        return RouteNotFoundError("there is nothing at this path: see /openapi.json")
    if error.status_code == 405:  # noqa: PLR2004 - a path with other methods
        return MethodNotAllowedError("this path does not take this method: see /openapi.json")
    return BodyMalformedError(f"the request cannot be read: {error.detail}")
