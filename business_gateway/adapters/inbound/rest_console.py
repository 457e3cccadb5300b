"""The page's files, and signing in and out of it."""

import base64
import gzip
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from business_gateway.adapters.inbound.rest_problems import RouteNotFoundError
from business_gateway.adapters.inbound.rest_security import (
    SESSION_COOKIE,
    TOKEN_CHARS_MAX,
    CredentialRefusedError,
    check_csrf,
    is_client_key,
    session_of,
)
from business_gateway.core.console.errors import SessionForbiddenError
from business_gateway.core.console.ports import PlatformDesk
from business_gateway.core.console.sessions import SESSION_VALID_S, Session, Sessions
from foundation.secrets import hash_token

CONSOLE_PATH: Final = "/console"
_INDEX: Final = "index.html"
_MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_IMPORT_MAP: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
_VENDOR_MISSING: Final = (
    "The page's packages are not here yet: run `make setup`, which fetches them, and start again.\n"
)


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is served."""

    content: bytes
    packed: bytes
    media_type: str
    etag: str


class PageFiles:
    """All files of the page, read once; every other path below it is the page itself."""

    def __init__(self, folder: Traversable) -> None:
        self._files = dict(_read(folder, PurePosixPath()))
        index = self._files[_INDEX].content.decode("utf-8")
        self._headers = {
            "Content-Security-Policy": _policy(_IMPORT_MAP.findall(index)),
            "Cross-Origin-Opener-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-cache",
            "Vary": "Accept-Encoding",
        }

    @property
    def is_complete(self) -> bool:
        """Whether the packages that the page imports were fetched."""
        return any(path.startswith("vendor/") for path in self._files)

    def response(self, path: str, request: Request) -> Response:
        """Answer a path; RouteNotFoundError for a file that there is not."""
        if not self.is_complete:
            return Response(_VENDOR_MISSING, 503, self._headers, "text/plain; charset=utf-8")
        is_file = bool(PurePosixPath(path).suffix)
        found = self._files.get(path if is_file else _INDEX)
        if found is None:
            raise RouteNotFoundError(f"the page has no file {path[:200]!r}")
        headers = {**self._headers, "ETag": found.etag}
        if request.headers.get("If-None-Match") == found.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            packed = {**headers, "Content-Encoding": "gzip"}
            return Response(found.packed, 200, packed, found.media_type)
        return Response(found.content, 200, headers, found.media_type)


class SignIn(BaseModel):
    """A key of the gateway or of an operator."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(min_length=1, max_length=TOKEN_CHARS_MAX)


def page_router() -> APIRouter:
    """Return the routes of the page's files."""
    page = PageFiles(files("business_gateway.console").joinpath("static"))
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    @router.get(CONSOLE_PATH)
    async def to_the_page() -> Response:
        return RedirectResponse(f"{CONSOLE_PATH}/", 307)

    @router.get(f"{CONSOLE_PATH}/{{path:path}}")
    async def file(path: str, request: Request) -> Response:
        return page.response(path, request)

    return router


def session_router(
    sessions: Sessions, key_hashes: Sequence[bytes], desk: PlatformDesk
) -> APIRouter:
    """Return the routes that begin, show and end a session."""
    router = APIRouter(prefix=f"{CONSOLE_PATH}/api/session", include_in_schema=False)

    @router.get("")
    async def show(request: Request) -> Response:
        """Show who is signed in; nobody is an answer too, since the page asks it first."""
        return JSONResponse(_document(session_of(request, sessions)), headers=_NOT_STORED)

    @router.post("")
    async def sign_in(body: SignIn, request: Request) -> Response:
        """Begin a session, or add the other identity to the present one."""
        _refuse_cross_site(request)
        session = session_of(request, sessions) or sessions.begin()
        if is_client_key(body.key, key_hashes):
            session = sessions.with_client(session, hash_token(body.key))
        # A header of a request cannot carry anything else.
        elif body.key.isascii() and body.key.isprintable() and await desk.is_operator(body.key):
            session = sessions.with_operator(session, body.key)
        else:
            raise CredentialRefusedError(
                "this is neither an API key of the gateway nor an operator's key: check it"
            )
        response = JSONResponse(_document(session), headers=_NOT_STORED)
        _set_cookie(response, sessions.seal(session), SESSION_VALID_S)
        return response

    @router.delete("")
    async def sign_out(request: Request) -> Response:
        session = session_of(request, sessions)
        if session is not None:
            check_csrf(request, session)
        response = Response(status_code=204, headers=_NOT_STORED)
        _set_cookie(response, "", 0)
        return response

    return router


_NOT_STORED: Final = {"Cache-Control": "no-store"}


def session_required(sessions: Sessions) -> Callable[[Request], Session]:
    """Return the dependency that answers the session, or raises CredentialRefusedError."""

    def session(request: Request) -> Session:
        found = session_of(request, sessions)
        if found is None:
            raise CredentialRefusedError("there is no session, or it is over: sign in again")
        return found

    return session


def _document(session: Session | None) -> dict[str, object]:
    if session is None:
        return {"client": False, "operator": False}
    return {
        "client": bool(session.client_key_sha256),
        "operator": session.is_operator,
        "csrf_token": session.csrf_token,
        "expires_at_s": session.expires_at_s,
    }


def _set_cookie(response: Response, value: str, valid_s: int) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=valid_s,
        path="/",
        secure=True,
        httponly=True,
        samesite="strict",
    )


def _refuse_cross_site(request: Request) -> None:
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        raise SessionForbiddenError("another site asks to sign in here: open the page itself")


def _policy(inline_scripts: Sequence[str]) -> str:
    """Allow our own files only, and the import map by its hash, since it cannot be a file."""
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()) for one in inline_scripts]
    scripts = " ".join(["'self'", *(f"'sha256-{one.decode()}'" for one in hashes)])
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _read(folder: Traversable, place: PurePosixPath) -> Sequence[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        path = place / entry.name
        if entry.is_dir():
            found += _read(entry, path)
        elif path.suffix in _MEDIA_TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            packed = gzip.compress(content, mtime=0)
            found.append((str(path), PageFile(content, packed, _MEDIA_TYPES[path.suffix], etag)))
    return found
