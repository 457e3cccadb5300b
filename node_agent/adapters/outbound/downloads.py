"""How far one download is, and which bytes of the object are still to be asked for."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import BinaryIO, Final

import aiohttp

from node_agent.adapters.outbound.transfer_errors import InterruptionError
from node_agent.core.execution.ports import Grant
from node_agent.sdk.files import GrantSource

_READ_BYTES: Final = 1024 * 1024
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(slots=True)
class Download:
    """How far one download is; `best_bytes` is the most it ever had."""

    grants: GrantSource
    file: BinaryIO
    on_bytes: Callable[[], None]
    grant: Grant | None = None
    received_bytes: int = 0
    best_bytes: int = 0
    entity_tag: str = ""
    complete: bool = False
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def adopt(self) -> None:
        """Take over what an earlier process of the attempt has left in the file."""
        self.file.seek(0)
        while piece := self.file.read(_READ_BYTES):
            self.digest.update(piece)
            self.received_bytes += len(piece)
            self.on_bytes()
        self.best_bytes = self.received_bytes

    def fits(self, grant: Grant) -> bool:
        """Whether what was taken over may be the beginning of the grant's object.

        Only a known hash will tell, at the end, that it was.
        """
        has_version = bool(self.entity_tag) or bool(grant.sha256)
        return has_version and not (grant.size_bytes and self.received_bytes >= grant.size_bytes)

    def begin_again(self) -> None:
        """Forget all that came."""
        self.file.seek(0)
        self.file.truncate()
        self.received_bytes = 0
        self.entity_tag = ""
        self.digest = hashlib.sha256()

    def take(self, piece: bytes) -> None:
        """Write and hash what came."""
        self.file.write(piece)
        self.digest.update(piece)
        self.received_bytes += len(piece)


def range_of(download: Download) -> dict[str, str]:
    """Ask for the rest only, and only of the same object."""
    if not download.received_bytes:
        return {}
    condition = {"If-Match": download.entity_tag} if download.entity_tag else {}
    return {"Range": f"bytes={download.received_bytes}-", **condition}


def place(download: Download, response: aiohttp.ClientResponse) -> None:
    """Stand where the body of the answer begins: behind what is here, or at the start."""
    entity_tag = response.headers.get("ETag", "")
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        # The whole object, whether or not a part was asked for: some stores know no ranges.
        download.begin_again()
        download.entity_tag = entity_tag
        return
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    fits = found is not None and int(found[1]) == download.received_bytes
    if not fits or (download.entity_tag and entity_tag not in {"", download.entity_tag}):
        download.begin_again()
        raise InterruptionError("the store answered another range than was asked for")


def difference(download: Download) -> str | None:
    """How what came differs from what the grant names, None if it does not."""
    grant = download.grant
    if grant is None:
        return None
    if grant.size_bytes and download.received_bytes != grant.size_bytes:
        return f"has {download.received_bytes} bytes instead of {grant.size_bytes}"
    if grant.sha256 and download.digest.digest() != grant.sha256:
        return f"has SHA-256 {download.digest.hexdigest()} instead of {grant.sha256.hex()}"
    return None
