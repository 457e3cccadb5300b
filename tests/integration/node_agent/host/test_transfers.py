"""Transfers against a store that refuses, cuts, stalls, forgets ranges, or sends wrong bytes."""

import dataclasses
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from foundation.errors import TdpError
from node_agent.adapters.outbound.transfers import HttpTransfers, TransferConfig
from node_agent.core.execution.ports import Grant
from node_agent.sdk.files import GrantSource
from tests.integration.node_agent.host.faulty_store import Fault, FaultyStore, running

KIB = 1024
CONTENT = os.urandom(900 * KIB)
HASH = hashlib.sha256(CONTENT).digest()
QUICK = TransferConfig(
    tries_max=4,
    wait_initial_s=0.001,
    wait_max_s=0.002,
    silence_timeout_s=0.3,
    chunk_bytes=64 * KIB,
)


def nothing() -> None:
    """Takes no notice of bytes."""


@pytest.fixture
async def faulty() -> AsyncIterator[FaultyStore]:
    async with running() as store:
        store.objects["thing"] = CONTENT
        yield store


@pytest.fixture
async def transfers() -> AsyncIterator[HttpTransfers]:
    async with HttpTransfers(QUICK) as transfers:
        yield transfers


def source_of(
    store: FaultyStore, size_bytes: int = len(CONTENT), sha256: bytes = HASH
) -> GrantSource:
    async def grants() -> Grant:
        return store.grant("thing", size_bytes=size_bytes, sha256=sha256)

    return grants


async def fetched(store: FaultyStore, transfers: HttpTransfers, folder: Path) -> Path:
    file = folder / "thing"
    transferred = await transfers.download(source_of(store), file, store.taken.set)
    assert (transferred.size_bytes, transferred.sha256) == (len(CONTENT), HASH)
    assert file.read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["thing"]
    return file


async def test_a_cut_download_asks_for_the_rest_only(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """After a reset in the middle the next request is a range behind what has come."""
    faulty.faults.extend([Fault(cut_after_bytes=300 * KIB)])
    await fetched(faulty, transfers, tmp_path)
    first, second = faulty.ranges
    assert first == ""
    assert 64 * KIB <= int(second.removeprefix("bytes=").removesuffix("-")) <= 300 * KIB
    assert len(faulty.grants) == 1


async def test_a_new_process_goes_on_where_the_last_one_died(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """What a killed process left is not fetched again."""
    (tmp_path / "thing.part").write_bytes(CONTENT[: 500 * KIB])
    await fetched(faulty, transfers, tmp_path)
    assert faulty.ranges == [f"bytes={500 * KIB}-"]


@pytest.mark.parametrize("left", [b"other" * 100, CONTENT + b"more", CONTENT])
async def test_what_does_not_belong_to_the_object_is_fetched_anew(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path, left: bytes
) -> None:
    """The hash tells in the end, and the size at once; then all is read from the start."""
    (tmp_path / "thing.part").write_bytes(left)
    await fetched(faulty, transfers, tmp_path)
    assert faulty.ranges[-1] == ""


async def test_without_a_hash_nothing_is_taken_over(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """Two halves of different objects would not be noticed."""
    (tmp_path / "thing.part").write_bytes(b"other")
    await transfers.download(source_of(faulty, sha256=b""), tmp_path / "thing", nothing)
    assert (tmp_path / "thing").read_bytes() == CONTENT
    assert faulty.ranges == [""]


async def test_a_store_without_ranges_is_read_from_the_start(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """A 200 in answer to a range holds the whole object, and is taken so."""
    faulty.faults.extend([Fault(cut_after_bytes=300 * KIB), Fault(no_range=True)])
    await fetched(faulty, transfers, tmp_path)
    assert faulty.ranges[1].startswith("bytes=")


async def test_an_object_that_changed_meanwhile_is_read_from_the_start(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """Two halves of different objects are never put together."""
    faulty.objects["thing"] = os.urandom(len(CONTENT))
    faulty.faults.extend([Fault(cut_after_bytes=300 * KIB), Fault(new_content=CONTENT)])
    await fetched(faulty, transfers, tmp_path)
    assert faulty.ranges[1].startswith("bytes=")
    assert faulty.ranges[2] == ""


@pytest.mark.parametrize("status", [401, 403, 410])
async def test_a_refused_grant_is_renewed_in_the_middle(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path, status: int
) -> None:
    """When the grant is over at the second request, a fresh one goes on where the first ended."""
    faulty.faults.extend([Fault(cut_after_bytes=300 * KIB), Fault(status=status)])
    await fetched(faulty, transfers, tmp_path)
    assert faulty.requests == ["secret1", "secret1", "secret2"]
    assert faulty.ranges[2].startswith("bytes=")


async def test_a_grant_near_its_end_is_not_used(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """An expired grant costs no request: a fresh one is asked for at once."""
    waiting = [faulty.grant("thing", lasts_s=-1.0), faulty.grant("thing", sha256=HASH)]

    async def grants() -> Grant:
        return waiting.pop(0)

    faulty.faults.extend([Fault(status=500)])
    await transfers.download(grants, tmp_path / "thing", nothing)
    assert faulty.requests == ["secret1", "secret2"]


async def test_errors_and_stalls_are_overcome(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """500, 503, 429 and a connection on which nothing comes any more cost a try each."""
    faulty.faults.extend([Fault(status=500), Fault(status=503), Fault(status=429)])
    await fetched(faulty, transfers, tmp_path)
    faulty.faults.extend([Fault(silent_after_bytes=200 * KIB)])
    (tmp_path / "thing").unlink()
    await fetched(faulty, transfers, tmp_path)


async def test_headway_renews_the_number_of_tries(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """More interruptions than tries do not matter as long as each try brings something."""
    faulty.faults.extend([Fault(cut_after_bytes=128 * KIB)] * 6)
    await fetched(faulty, transfers, tmp_path)
    assert len(faulty.ranges) == 7


@pytest.mark.parametrize(
    ("faults", "reason", "retryable"),
    [
        ([Fault(status=503)] * 9, "TRANSFER_FAILED", True),
        ([Fault(status=403)] * 9, "TRANSFER_FAILED", True),
        ([Fault(cut_after_bytes=128 * KIB, no_range=True)] * 9, "TRANSFER_FAILED", True),
        ([Fault(corrupt=True)] * 9, "RESOURCE_DAMAGED", True),
        ([Fault(status=404)], "RESOURCE_MISSING", False),
        ([Fault(status=302)], "TRANSFER_REFUSED", False),
        ([Fault(new_content=CONTENT + b"x")], "RESOURCE_DAMAGED", True),
        ([Fault(new_content=CONTENT[:-1])], "RESOURCE_DAMAGED", True),
    ],
)
async def test_a_download_that_cannot_succeed_ends_with_its_reason(
    faulty: FaultyStore,
    transfers: HttpTransfers,
    tmp_path: Path,
    faults: list[Fault],
    reason: str,
    retryable: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """The tries are bounded, no file is left, and no message shows the signed URL."""
    faulty.faults.extend(faults)
    with pytest.raises(TdpError) as caught:
        await transfers.download(source_of(faulty), tmp_path / "thing", faulty.taken.set)
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)
    assert "secret" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert list(tmp_path.iterdir()) == []
    assert len(faulty.ranges) <= 8


async def test_a_signed_url_is_sent_as_it_stands(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """Escapes are part of what was signed, however needless they look."""
    path = "/%74hing?X-Amz-Signature=a%7Eb%2Fc&X-Amz-Credential=k/2026%2Fs3"
    good = faulty.grant("thing")
    signed = dataclasses.replace(good, url=f"{faulty.base_url}{path}")

    async def grants() -> Grant:
        return signed

    await transfers.download(grants, tmp_path / "thing", nothing)
    assert faulty.raw_paths == [path]


async def test_wrong_bytes_once_are_fetched_again(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """Bytes that were damaged on the way are replaced by the right ones."""
    faulty.faults.extend([Fault(corrupt=True)])
    await fetched(faulty, transfers, tmp_path)


async def test_an_object_of_unknown_size_is_bounded(faulty: FaultyStore, tmp_path: Path) -> None:
    """Where the grant names no size, the agent's own bound holds."""
    config = TransferConfig(size_bytes_max=100 * KIB, chunk_bytes=16 * KIB)
    async with HttpTransfers(config) as transfers:
        with pytest.raises(TdpError) as caught:
            await transfers.download(
                source_of(faulty, size_bytes=0, sha256=b""), tmp_path / "thing", nothing
            )
    assert caught.value.reason == "RESOURCE_TOO_LARGE"


async def test_an_upload_is_sent_again_with_a_fresh_grant(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """503 is tried again with the same grant, 403 with a fresh one; the object arrives whole."""
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    faulty.faults.extend([Fault(status=503), Fault(status=403)])

    async def grants() -> Grant:
        return faulty.grant("sent", "PUT")

    moved: list[None] = []
    transferred = await transfers.upload(source, grants, lambda: moved.append(None))
    assert (transferred.size_bytes, transferred.sha256) == (len(CONTENT), HASH)
    assert faulty.objects["sent"] == CONTENT
    assert faulty.requests == ["secret1", "secret1", "secret2"]
    assert len(moved) >= 3 * len(CONTENT) // QUICK.chunk_bytes


async def test_an_empty_file_can_be_sent(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """Nothing is a content too."""
    source = tmp_path / "source"
    source.touch()

    async def grants() -> Grant:
        return faulty.grant("sent", "PUT")

    transferred = await transfers.upload(source, grants, nothing)
    assert transferred.size_bytes == 0
    assert faulty.objects["sent"] == b""


async def test_a_file_over_the_grants_bound_is_not_sent(
    faulty: FaultyStore, transfers: HttpTransfers, tmp_path: Path
) -> None:
    """The bound of the place is checked before a byte goes out."""
    source = tmp_path / "source"
    source.write_bytes(CONTENT)

    async def grants() -> Grant:
        return faulty.grant("sent", "PUT", size_bytes=10)

    with pytest.raises(TdpError) as caught:
        await transfers.upload(source, grants, nothing)
    assert caught.value.reason == "RESOURCE_TOO_LARGE"
    assert faulty.requests == []


async def test_file_grants_are_refused_unless_allowed(
    transfers: HttpTransfers, tmp_path: Path, faulty: FaultyStore
) -> None:
    """A server cannot make an agent read or write its own files."""
    secret = tmp_path / "secret"
    secret.write_text("x", encoding="ascii")
    good = faulty.grant("thing")
    bad = Grant("1", "thing", "GET", secret.as_uri(), {}, good.expires_at, 0, b"")

    async def grants() -> Grant:
        return bad

    for work in (
        transfers.download(grants, tmp_path / "copy", nothing),
        transfers.upload(secret, grants, nothing),
    ):
        with pytest.raises(TdpError) as caught:
            await work
        assert caught.value.reason == "TRANSFER_REFUSED"
