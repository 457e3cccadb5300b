"""ResourceProviderService over real gRPC, PostgreSQL and S3."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from business_gateway.core.resources.sweeping import LeftPlaces
from foundation.errors import TdpError
from tdp.resource.v1 import resource_provider_service_pb2 as pb
from tests.integration.business_gateway.gateway import Running
from tests.integration.business_gateway.resources.world import (
    Platform,
    download,
    identity,
    platform_of,
    reason_of,
    upload,
)

PUT = pb.ACCESS_METHOD_PUT
CONTENT = b"a small picture"
NO_ID = identity(9, 9)


@pytest.fixture
async def platform(running: Running) -> AsyncIterator[Platform]:
    async with platform_of(running) as one:
        yield one


def _file(
    place: pb.AllocatedPlace, content: bytes = CONTENT, **changes: Any
) -> pb.CommittedArtifact:
    facts: dict[str, Any] = {
        "relative_path": place.relative_path,
        "resource_ref": place.resource_ref,
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).digest(),
        **changes,
    }
    return pb.CommittedArtifact(**facts)


async def _states(platform: Platform) -> list[tuple[str, str]]:
    rows = await platform.running.database.fetch(
        "select relative_path, state from artifacts order by relative_path, created_at"
    )
    return [(row["relative_path"], row["state"]) for row in rows]


async def _artifacts(platform: Platform, query: str = "") -> dict[str, Any]:
    path = f"/api/v1/orders/{platform.order_id}/artifacts{query}"
    status, page, _ = await platform.running.client.call("GET", path)
    assert status == 200, page
    return dict(page)


async def test_the_source_can_be_read_with_what_is_known_of_it(platform: Platform) -> None:
    """A GET grant for the order's asset names size and hash, and its URL gives the bytes."""
    grant = await platform.grant(f"asset:{platform.asset_id}")
    content = await download(grant.url)
    assert content[:4] == b"PK\x03\x04"
    assert (grant.size_bytes, grant.sha256) == (len(content), hashlib.sha256(content).digest())
    assert grant.method == pb.ACCESS_METHOD_GET


@pytest.mark.parametrize(
    ("desired_s", "expected_s"), [(None, 900), (300, 300), (3_600, 900), (-600, 60)]
)
async def test_a_grant_lasts_as_wished_within_bounds(
    platform: Platform, desired_s: int | None, expected_s: int
) -> None:
    """15 minutes at most; a moment in the past, from a wrong clock, still gives a minute."""
    fields: dict[str, Any] = {}
    now = datetime.now(UTC)
    if desired_s is not None:
        fields["desired_expire_time"] = now + timedelta(seconds=desired_s)
    grant = await platform.grant(f"asset:{platform.asset_id}", **fields)
    lasts_s = (grant.expire_time.ToDatetime(tzinfo=UTC) - now).total_seconds()
    assert expected_s - 5 <= lasts_s <= expected_s + 30


async def test_only_the_provider_secret_opens_anything(platform: Platform) -> None:
    """Another secret, or none of ours, is UNAUTHENTICATED on every call."""
    stranger = platform.with_(secret="another-secret-of-the-tests")
    for call in (
        stranger.grant(f"asset:{platform.asset_id}"),
        stranger.allocate("a.png"),
        stranger.commit([]),
    ):
        with pytest.raises(TdpError) as caught:
            await call
        assert reason_of(caught.value) == ("UNAUTHENTICATED", "PROVIDER_SECRET_REFUSED")


async def test_what_is_not_the_order_s_is_refused(platform: Platform) -> None:
    """Another order's asset and artifact, unknown ones and collections are each told apart."""
    other_order = await platform.running.client.order("k2")
    other = platform.with_(order_id=other_order["order_id"], attempt_id=identity(5, 2))
    [place] = await other.allocate("theirs.png")
    refusals = [
        (f"asset:{other_order['source_asset_id']}", "PERMISSION_DENIED"),
        (f"asset:{NO_ID}", "NOT_FOUND"),
        (f"artifact:{NO_ID}", "NOT_FOUND"),
        (place.resource_ref, "PERMISSION_DENIED"),
        ("file:///etc/passwd", "NOT_FOUND"),
        ("asset:nonsense", "NOT_FOUND"),
        (platform.collection_ref, "INVALID_ARGUMENT"),
    ]
    for ref, code in refusals:
        with pytest.raises(TdpError) as caught:
            await platform.grant(ref)
        assert caught.value.code == code, ref
    for ref in (place.resource_ref, f"asset:{platform.asset_id}"):
        with pytest.raises(TdpError) as caught:
            await platform.grant(ref, PUT)
        assert caught.value.code == "PERMISSION_DENIED", ref


async def test_an_incomplete_request_names_its_field(platform: Platform) -> None:
    """No method, another application, a broken id, a scope: INVALID_ARGUMENT with the field."""
    ref = f"asset:{platform.asset_id}"
    for call, field in (
        (platform.grant(ref, pb.ACCESS_METHOD_UNSPECIFIED), "method"),
        (platform.with_(application_id=NO_ID).grant(ref), "work.application_id"),
        (platform.with_(attempt_id="").grant(ref), "work.attempt_id"),
        (platform.with_(order_id="mine").grant(ref), "work.external_ref"),
        (platform.with_(step_key="").grant(ref), "work.step_key"),
        (platform.grant(ref, scope_type="entry", scope_ref="a"), "scope_type"),
        (platform.grant(ref, scope_type="entry"), "scope_type"),
        (platform.with_(boot_id="a/b").allocate("a.png"), "boot_id"),
        (platform.allocate(), "artifacts"),
        (platform.allocate(*[f"{n}.png" for n in range(201)]), "artifacts"),
        (platform.allocate("../up.png"), "artifacts[0].relative_path"),
        (platform.allocate("a.png", "a.png"), "artifacts[1].relative_path"),
        (platform.allocate("a.png", size_bytes_max=0), "artifacts[0].size_bytes_max"),
        (platform.commit([], part=0), "part"),
        (platform.commit([], part=2, part_count=1), "part"),
    ):
        with pytest.raises(TdpError) as caught:
            await call
        found = [one.field for one in caught.value.field_violations]
        assert (caught.value.code, found) == ("INVALID_ARGUMENT", [field])
    assert await _states(platform) == []


async def test_a_place_is_one_reference_and_one_key_however_often_asked(
    platform: Platform,
) -> None:
    """The same (attempt, boot, path) is the same place, also when asked many times at once."""
    first = await platform.allocate("b.png", "文件 a.png")
    assert [one.relative_path for one in first] == ["b.png", "文件 a.png"]
    again = await asyncio.gather(*[platform.allocate("文件 a.png", "b.png") for _ in range(10)])
    for places in again:
        assert [one.resource_ref for one in places] == [one.resource_ref for one in first][::-1]
    other_boot = await platform.with_(boot_id=identity(6, 2)).allocate("b.png")
    assert other_boot[0].resource_ref != first[0].resource_ref
    keys = {
        row["object_key"]
        for row in await platform.running.database.fetch("select object_key from artifacts")
    }
    assert len(keys) == 3
    prefix = f"artifacts/{platform.order_id}/{platform.attempt_id}/"
    assert all(key.startswith(prefix) and key.isascii() for key in keys)


async def test_places_need_their_own_collection(platform: Platform) -> None:
    """Another's collection is refused, a missing order not found; nothing is stored."""
    with pytest.raises(TdpError) as caught:
        await platform.allocate("a.png", collection_ref=f"collection:{NO_ID}")
    assert reason_of(caught.value) == ("PERMISSION_DENIED", "RESOURCE_REFUSED")
    with pytest.raises(TdpError) as caught:
        await platform.with_(order_id=NO_ID).allocate("a.png")
    assert reason_of(caught.value) == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert await _states(platform) == []


async def test_uploaded_bytes_are_verified_committed_and_downloaded(platform: Platform) -> None:
    """Allocate, upload, commit: then clients list them, download them, and steps may read them."""
    places = await platform.allocate("watermark/images/b.png", "watermark/images/a.png")
    for place in places:
        assert place.grant.size_bytes == 1_000
        assert await upload(place.grant, CONTENT) == 200
    assert (await _artifacts(platform))["artifacts"] == []
    assert await platform.commit([_file(one) for one in places]) == 2
    page = await _artifacts(platform)
    assert [one["relative_path"] for one in page["artifacts"]] == [
        "watermark/images/a.png",
        "watermark/images/b.png",
    ]
    artifact = page["artifacts"][0]
    assert artifact["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    path = f"/api/v1/orders/{platform.order_id}/artifacts/{artifact['artifact_id']}/download"
    status, _, headers = await platform.running.client.call("GET", path)
    assert (status, headers["Cache-Control"]) == (307, "no-store")
    assert await download(headers["Location"]) == CONTENT
    no_picture = path.replace("/download", "/thumbnail")
    status, problem, _ = await platform.running.client.call("GET", no_picture)
    assert (status, problem["reason"]) == (404, "THUMBNAIL_UNAVAILABLE")
    later = platform.with_(attempt_id=identity(5, 9), step_key="watermark")
    grant = await later.grant(places[0].resource_ref)
    assert grant.sha256 == hashlib.sha256(CONTENT).digest()
    assert await download(grant.url) == CONTENT


async def test_an_upload_grant_is_renewed_for_its_attempt_until_committed(
    platform: Platform,
) -> None:
    """PUT renews to the same key; another attempt may not, nor anyone after the commit."""
    [place] = await platform.allocate("a.png")
    renewed = await platform.grant(place.resource_ref, PUT)
    assert renewed.url.split("?")[0] == place.grant.url.split("?")[0]
    with pytest.raises(TdpError) as caught:
        await platform.with_(attempt_id=identity(5, 2)).grant(place.resource_ref, PUT)
    assert caught.value.code == "PERMISSION_DENIED"
    with pytest.raises(TdpError) as caught:
        await platform.grant(place.resource_ref)
    assert caught.value.code == "PERMISSION_DENIED"
    assert await upload(renewed, CONTENT) == 200
    await platform.commit([_file(place)])
    with pytest.raises(TdpError) as caught:
        await platform.grant(place.resource_ref, PUT)
    assert caught.value.code == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("uploaded", "changes"),
    [
        (None, {}),
        (CONTENT + b"!", {}),
        (CONTENT[:-1] + b"!", {}),
        (CONTENT, {"sha256": bytes(32)}),
        (CONTENT, {"size_bytes": 1}),
        (CONTENT, {"relative_path": "b.png"}),
        (b"x" * 1_001, {"size_bytes": 1_001, "sha256": hashlib.sha256(b"x" * 1_001).digest()}),
    ],
)
async def test_bytes_that_differ_are_never_committed(
    platform: Platform, uploaded: bytes | None, changes: dict[str, Any]
) -> None:
    """Missing, longer, altered, misnamed or oversized: ARTIFACT_MISMATCH, and nothing changes."""
    good, place = await platform.allocate("good.png", "a.png")
    await upload(good.grant, CONTENT)
    if uploaded is not None:
        await upload(place.grant, uploaded)
    with pytest.raises(TdpError) as caught:
        await platform.commit([_file(good), _file(place, **changes)])
    assert reason_of(caught.value) == ("FAILED_PRECONDITION", "ARTIFACT_MISMATCH")
    assert await _states(platform) == [("a.png", "ALLOCATED"), ("good.png", "ALLOCATED")]
    assert await platform.running.database.fetch("select 1 from artifact_commits") == []


async def test_bytes_mended_after_a_mismatch_are_hashed_anew(platform: Platform) -> None:
    """A hash that is remembered belongs to its bytes: another upload is looked at again."""
    [place] = await platform.allocate("a.png")
    await upload(place.grant, b"x" * len(CONTENT))
    with pytest.raises(TdpError):
        await platform.commit([_file(place)])
    await upload(place.grant, CONTENT)
    assert await platform.commit([_file(place)]) == 1


async def test_a_commit_is_answered_again_and_only_as_it_was(platform: Platform) -> None:
    """A repeat gets the first answer, even with the bytes gone; other files are a conflict."""
    one, two = await platform.allocate("a.png", "b.png")
    for place in (one, two):
        await upload(place.grant, CONTENT)
    assert await platform.commit([_file(one)]) == 1
    key = one.grant.url.split("?")[0].split("/", 4)[4]
    await platform.running.gateway.objects.delete(key)
    assert await platform.commit([_file(one)]) == 1
    with pytest.raises(TdpError) as caught:
        await platform.commit([_file(two)])
    assert reason_of(caught.value) == ("FAILED_PRECONDITION", "ARTIFACT_COMMIT_CONFLICT")
    assert await _states(platform) == [("a.png", "COMMITTED"), ("b.png", "ALLOCATED")]


async def test_parts_become_visible_together(platform: Platform) -> None:
    """Files of several parts are seen once the last is committed, in whatever order they come."""
    places = await platform.allocate(*[f"{n}.png" for n in range(4)])
    for place in places:
        await upload(place.grant, CONTENT)
    files = [_file(one) for one in places]
    assert await platform.commit(files[2:], part=2, part_count=2) == 2
    assert (await _artifacts(platform))["artifacts"] == []
    with pytest.raises(TdpError) as caught:
        await platform.commit(files[:2], part=1, part_count=3)
    assert caught.value.reason == "ARTIFACT_COMMIT_CONFLICT"
    answers = await asyncio.gather(
        *[platform.commit(files[:2], part=1, part_count=2) for _ in range(5)]
    )
    assert answers == [2] * 5
    assert len((await _artifacts(platform))["artifacts"]) == 4


async def test_one_attempt_of_a_step_commits_a_path(platform: Platform) -> None:
    """A second attempt of the same step cannot commit the same path of the execution."""
    other = platform.with_(attempt_id=identity(5, 2))
    [mine], [theirs] = await platform.allocate("a.png"), await other.allocate("a.png")
    for place in (mine, theirs):
        await upload(place.grant, CONTENT)
    await platform.commit([_file(mine)])
    with pytest.raises(TdpError) as caught:
        await other.commit([_file(theirs)])
    assert reason_of(caught.value) == ("FAILED_PRECONDITION", "ARTIFACT_COMMIT_CONFLICT")
    with pytest.raises(TdpError) as caught:
        await platform.with_(attempt_id=identity(5, 3)).commit([_file(theirs)])
    assert caught.value.code == "PERMISSION_DENIED"
    assert await _states(platform) == [("a.png", "COMMITTED"), ("a.png", "ALLOCATED")]


async def test_artifacts_come_in_pages_by_path(platform: Platform) -> None:
    """Cursors lead through all results; those of another order or list are refused."""
    places = await platform.allocate(*[f"{n:02}.png" for n in range(5)])
    for place in places:
        await upload(place.grant, CONTENT)
    await platform.commit([_file(one) for one in places])
    seen, cursor = [], ""
    while True:
        page = await _artifacts(platform, f"?page_size=2&cursor={cursor}")
        seen += [one["relative_path"] for one in page["artifacts"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert seen == [f"{n:02}.png" for n in range(5)]
    path = f"/api/v1/orders/{platform.order_id}/artifacts"
    call = platform.running.client.call
    assert (await call("GET", f"{path}?cursor=strange"))[0] == 400
    for strange, status in ((NO_ID, 404), ("nonsense", 422)):
        assert (await call("GET", f"{path}/{strange}/download"))[0] == status


async def test_places_that_nobody_committed_are_removed_with_their_bytes(
    platform: Platform,
) -> None:
    """After their time uncommitted uploads go, bytes first; committed ones stay."""
    kept, left = await platform.allocate("kept.png", "left.png")
    for place in (kept, left):
        await upload(place.grant, CONTENT)
    await platform.commit([_file(kept)])
    gateway = platform.running.gateway
    store = gateway._resource_store
    for older_than_s, states in (
        (60.0, [("kept.png", "COMMITTED"), ("left.png", "ALLOCATED")]),
        (0.0, [("kept.png", "COMMITTED")]),
    ):
        sweep = LeftPlaces(store, gateway.objects, older_than_s=older_than_s, batch=10)
        assert not await sweep.remove()
        assert await _states(platform) == states
    listed = await gateway.objects._client.list_objects_v2(
        Bucket=gateway.settings.s3_bucket, Prefix="artifacts/"
    )
    assert [one["Key"].endswith("-kept.png") for one in listed["Contents"]] == [True]
