"""References, paths, keys, grants and verification."""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from business_gateway.core.objects import ObjectFacts
from business_gateway.core.resources.domain import (
    Artifact,
    ArtifactId,
    ArtifactMismatchError,
    ArtifactState,
    CommittedFile,
    Place,
    ResourceNotFoundError,
    ResourceRefusedError,
    Work,
    check_boot_id,
    check_collection,
    check_places,
    check_relative_path,
    grant_valid_s,
    object_key,
    parse_ref,
)
from business_gateway.core.resources.verifying import ByteVerifier
from foundation.errors import InvalidArgumentError

ID = "0190a000-0000-7000-8000-000000000001"
OTHER = "0190a000-0000-7000-8000-000000000002"
WORK = Work(ID, OTHER, OTHER, "clean", -1, OTHER)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\\b", "a\nb", "a\x00", "é" * 513,
     "\u202ea", "a\ud800"],
)  # fmt: skip
def test_paths_that_could_leave_or_confuse_are_refused(path: str) -> None:
    """Only plain relative paths of at most 1,024 bytes are places."""
    with pytest.raises(InvalidArgumentError):
        check_relative_path(path, "path")


@given(st.lists(st.from_regex(r"[A-Za-z0-9_ é漢.-]{1,20}", fullmatch=True), min_size=1, max_size=5))
def test_keys_are_plain_distinct_and_within_their_attempt(parts: list[str]) -> None:
    """A key is ASCII, has no dots for parts, and differs whenever the path differs."""
    path = "/".join(parts)
    try:
        check_relative_path(path, "path")
    except InvalidArgumentError:
        return
    key = object_key(WORK, "boot", path)
    prefix = f"artifacts/{ID}/{OTHER}/boot/"
    assert key.startswith(prefix)
    assert key.isascii()
    assert "/" not in key.removeprefix(prefix)
    assert key != object_key(WORK, "boot", path + "x")
    assert len(key) < 300


@pytest.mark.parametrize(
    "ref", ["", "asset", "asset:", "asset:1", f"file:{ID}", f"{ID}", f"asset:{ID}x"]
)
def test_references_that_are_none_of_ours_are_not_found(ref: str) -> None:
    """Strange references are answered like missing ones."""
    with pytest.raises(ResourceNotFoundError):
        parse_ref(ref, "resource_ref")


def test_a_collection_is_the_order_of_the_work() -> None:
    """Another order's collection is refused, another kind of reference is wrong."""
    check_collection(f"collection:{ID.upper()}", WORK)
    with pytest.raises(ResourceRefusedError):
        check_collection(f"collection:{OTHER}", WORK)
    with pytest.raises(InvalidArgumentError):
        check_collection(f"asset:{ID}", WORK)


@pytest.mark.parametrize(
    "changes",
    [{"type": ""}, {"type": "t" * 101}, {"media_type": "png"}, {"media_type": "a/b\r\nx: y"},
     {"size_bytes_max": 0}, {"relative_path": "../a"}],
)  # fmt: skip
def test_a_wrong_place_names_its_field(changes: dict[str, Any]) -> None:
    """Each field of a place has its bounds."""
    good: dict[str, Any] = {
        "relative_path": "a.png",
        "type": "image",
        "media_type": "image/png; charset=x",
        "size_bytes_max": 1,
    }
    check_places([Place(**good)])
    with pytest.raises(InvalidArgumentError) as caught:
        check_places([Place(**{**good, "relative_path": "b"}), Place(**{**good, **changes})])
    [violation] = caught.value.field_violations
    assert violation.field == f"artifacts[1].{next(iter(changes))}"


@pytest.mark.parametrize("boot_id", ["", "a/b", "..", "a b", "é", "x" * 101])
def test_boot_ids_must_fit_into_a_key(boot_id: str) -> None:
    """Only plain words may stand in a key."""
    check_boot_id(ID)
    with pytest.raises(InvalidArgumentError):
        check_boot_id(boot_id)


@given(st.none() | st.integers(-10_000, 10_000))
def test_grants_last_within_their_bounds(wanted_s: int | None) -> None:
    """Never under the least, never over the most, else as desired."""
    desired = None if wanted_s is None else NOW + timedelta(seconds=wanted_s)
    given_s = grant_valid_s(desired, NOW, valid_s_min=60, valid_s_max=900)
    assert given_s == (900 if wanted_s is None else max(60, min(900, wanted_s)))


class Objects:
    """An object store that knows one object and counts how often it is hashed."""

    def __init__(self) -> None:
        self.content = b"bytes"
        self.trusted: bytes | None = None
        self.hashed = 0
        self.hashing = 0
        self.hashing_most = 0

    async def head(self, _key: str) -> ObjectFacts | None:
        etag = hashlib.md5(self.content, usedforsecurity=False).hexdigest()
        return ObjectFacts(len(self.content), etag, self.trusted)

    async def sha256_of(self, _key: str, _facts: ObjectFacts) -> bytes:
        self.hashed += 1
        self.hashing += 1
        self.hashing_most = max(self.hashing_most, self.hashing)
        await asyncio.sleep(0)
        self.hashing -= 1
        return hashlib.sha256(self.content).digest()


def _pair(number: int, content: bytes = b"bytes") -> tuple[CommittedFile, Artifact]:
    artifact_id = ArtifactId(f"a{number}")
    file = CommittedFile("p", artifact_id, len(content), hashlib.sha256(content).digest())
    artifact = Artifact(
        artifact_id=artifact_id,
        order_id=ID,
        execution_id=OTHER,
        step_key="clean",
        attempt_id=OTHER,
        relative_path="p",
        type="t",
        media_type="m/n",
        size_bytes_max=100,
        object_key=f"key{number}",
        state=ArtifactState.ALLOCATED,
        size_bytes=None,
        sha256=None,
        committed_at=None,
    )
    return file, artifact


async def test_a_commit_sent_again_hashes_nothing_twice() -> None:
    """What was hashed is remembered by key and ETag; other bytes are hashed anew."""
    objects = Objects()
    verifier = ByteVerifier(objects, hashes_max=2)  # type: ignore[arg-type]  # only what is used
    await verifier.verify([_pair(1), _pair(2)])
    await verifier.verify([_pair(1), _pair(2), _pair(3)])
    assert objects.hashed == 3
    objects.content = b"other"
    with pytest.raises(ArtifactMismatchError):
        await verifier.verify([_pair(1)])
    assert objects.hashed == 4


async def test_few_objects_are_hashed_at_once() -> None:
    """However many files a part has, only so many are read at a time."""
    objects = Objects()
    verifier = ByteVerifier(objects, hashes_max=2)  # type: ignore[arg-type]  # only what is used
    await verifier.verify([_pair(one) for one in range(20)])
    assert objects.hashing_most == 2


async def test_a_hash_that_the_store_checked_is_trusted() -> None:
    """Where the store itself compared the bytes with their SHA-256, they are not read again."""
    objects = Objects()
    objects.trusted = hashlib.sha256(b"bytes").digest()
    verifier = ByteVerifier(objects, hashes_max=2)  # type: ignore[arg-type]  # only what is used
    await verifier.verify([_pair(1)])
    assert objects.hashed == 0
    objects.trusted = bytes(32)
    with pytest.raises(ArtifactMismatchError):
        await verifier.verify([_pair(1)])
