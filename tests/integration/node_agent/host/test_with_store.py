"""Work of children with a real object store: files, checkpoints, and both capabilities."""

import asyncio
import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from PIL import Image

from node_agent.adapters.outbound.process_host import ProcessHost, ProcessHostConfig
from node_agent.capabilities.image_watermark import Watermarker
from node_agent.core.execution.ports import Failed, Outcome, RunOrder, Stopped, Succeeded
from node_agent.sdk import installed_references, load_capabilities
from tests.integration.node_agent.host.conftest import QUICK, MakeOrder
from tests.integration.node_agent.host.services import RecordedServices, Store

CASES = Path(__file__).parents[3] / "cases"
MIB = 1024 * 1024


@pytest.fixture
async def agent() -> AsyncIterator[ProcessHost]:
    """A host with what is installed."""
    config = ProcessHostConfig(slot_count=1, stop_grace_s=0.5, transfers=QUICK)
    host = ProcessHost(load_capabilities(installed_references()), config)
    yield host
    await host.stop()


def done(outcome: Outcome) -> Succeeded:
    assert isinstance(outcome, Succeeded), outcome
    return outcome


async def kept(store: Store, key: str, data: bytes) -> None:
    """Put an object of which grants name size and hash."""
    await store.put(key, data)
    store.sizes[key], store.hashes[key] = len(data), hashlib.sha256(data).digest()


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def noise(seed: int) -> bytes:
    """A picture that cannot be packed: about 200 kB."""
    made = io.BytesIO()
    pixels = Random(seed).randbytes(256 * 256 * 3)
    Image.frombytes("RGB", (256, 256), pixels).save(made, "PNG")
    return made.getvalue()


def picture(colour: int, form: str = "PNG") -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (160, 120), (colour, 90, 200)).save(made, form)
    return made.getvalue()


@pytest.mark.parametrize("capability", ["test.copy", "test.blocking"])
async def test_bytes_come_and_go_by_grants(
    host: ProcessHost, order: MakeOrder, store: Store, capability: str
) -> None:
    """An input is read and an artifact written through presigned URLs, in both styles."""
    content = os.urandom(5 * MIB + 7)
    await kept(store, "in", content)
    services = RecordedServices(store)
    given = {"archive_ref": "in", "collection_ref": "out"}
    outcome = done(await host.run(order(capability, given=given), services, asyncio.Event()))
    assert json.loads(outcome.output_json)["number"] == len(content)
    assert (outcome.collection_ref, outcome.artifact_count) == ("out", 1)
    (artifact,) = services.reported
    assert artifact.sha256 == hashlib.sha256(content).digest()
    assert await store.get("out/copied/file.bin") == content


async def test_wrong_bytes_in_the_store_never_reach_the_work(
    host: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """An object that is not what its grant says fails the attempt, and nothing is written."""
    await kept(store, "in", b"right")
    await store.put("in", b"wrong")
    services = RecordedServices(store)
    given = {"archive_ref": "in", "collection_ref": "out"}
    outcome = await host.run(order("test.copy", given=given), services, asyncio.Event())
    assert isinstance(outcome, Failed)
    assert (outcome.failure.reason, outcome.failure.retryable) == ("RESOURCE_DAMAGED", True)
    assert services.reported == []


async def test_an_expired_grant_is_asked_for_again(
    host: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """The store refuses a URL whose signature is broken; the next grant is whole."""
    await kept(store, "in", b"content")
    broken = iter([True, False, False, False])
    store.rewrite = lambda url: f"{url}0" if next(broken) else url
    services = RecordedServices(store)
    given = {"archive_ref": "in", "collection_ref": "out"}
    done(await host.run(order("test.copy", given=given), services, asyncio.Event()))
    assert services.authorize_count == 2


async def test_a_resumed_attempt_goes_on_behind_its_checkpoint(
    host: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """After the death of its child a resumed attempt redoes nothing and reports each artifact."""
    services = RecordedServices(store)
    given = {"collection_ref": "out", "count": 7, "how": "die at 4"}
    first = await host.run(order("test.count", given=given), services, asyncio.Event())
    assert isinstance(first, Failed)
    assert json.loads(services.checkpoints[-1]) == {"count": 4}
    assert services.reported == []
    resumed = order("test.count", given=given, checkpoint_json=services.checkpoint_json)
    outcome = done(await host.run(resumed, services, asyncio.Event()))
    assert json.loads(outcome.output_json)["number"] == 3
    assert outcome.artifact_count == 7
    assert sorted(one.relative_path for one in services.reported) == [
        f"numbers/{number}.txt" for number in range(7)
    ]


async def test_artifacts_are_reported_in_batches_before_the_result(
    host: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """Reports hold at most a hundred artifacts each, and together all of them."""
    services = RecordedServices(store)
    given = {"collection_ref": "out", "count": 130}
    outcome = done(await host.run(order("test.count", given=given), services, asyncio.Event()))
    assert (outcome.artifact_count, services.report_sizes) == (130, [100, 30])


async def test_archive_clean_writes_archive_and_manifest(
    agent: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """The clean archive and its manifest are in the store, as the output says."""
    await kept(store, "in", (CASES / "zip/junk-macos-finder.zip").read_bytes())
    services = RecordedServices(store)
    given = {"archive_ref": "in", "collection_ref": "out"}
    outcome = done(await agent.run(order("archive.clean", given=given), services, asyncio.Event()))
    output = json.loads(outcome.output_json)
    assert (output["kept_count"], output["removed_count"]) == (3, 5)
    assert outcome.artifact_count == 2
    clean = await store.get(output["archive_ref"])
    assert zipfile.ZipFile(io.BytesIO(clean)).namelist() == [
        "photos/",
        "photos/beach.png",
        "photos/readme.txt",
    ]
    assert len(clean) == output["clean_bytes"]
    manifest = json.loads(await store.get(output["manifest_ref"]))
    assert len(manifest["removed"]) == 5


async def test_a_bad_archive_is_refused_and_leaves_nothing(
    agent: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """The refusal has the archive's reason, is final, and no artifact was asked for."""
    await kept(store, "in", (CASES / "zip/bad-traversal.zip").read_bytes())
    services = RecordedServices(store)
    given = {"archive_ref": "in", "collection_ref": "out"}
    outcome = await agent.run(order("archive.clean", given=given), services, asyncio.Event())
    assert isinstance(outcome, Failed)
    assert (outcome.failure.reason, outcome.failure.retryable) == ("ARCHIVE_UNSAFE_PATH", False)
    assert services.allocate_count == 0


async def test_image_watermark_writes_pictures_zip_and_manifest(
    agent: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """Pictures differ from their sources, other files pass through, bad pictures are listed."""
    files = {
        "a/one.png": picture(10),
        "a/two.jpg": picture(20, "JPEG"),
        "notes.txt": b"no picture",
        "bad.png": (CASES / "image/png-broken-data.png").read_bytes(),
    }
    await kept(store, "in", zipped(files))
    services = RecordedServices(store)
    given = {"archive_ref": "in", "collection_ref": "out", "text": "水印 ©"}
    outcome = done(
        await agent.run(order("image.watermark", given=given), services, asyncio.Event())
    )
    output = json.loads(outcome.output_json)
    counted = output["image_count"], output["failed_count"], output["passed_through_count"]
    assert counted == (2, 1, 1)
    assert outcome.artifact_count == 4
    one = await store.get("out/watermark/images/a/one.png")
    assert Image.open(io.BytesIO(one)).size == (160, 120)
    assert one != files["a/one.png"]
    archive = zipfile.ZipFile(io.BytesIO(await store.get(output["archive_ref"])))
    assert archive.testzip() is None
    assert archive.namelist() == ["a/one.png", "a/two.jpg", "notes.txt"]
    assert archive.read("a/one.png") == one
    assert archive.read("notes.txt") == files["notes.txt"]
    manifest = json.loads(await store.get(output["manifest_ref"]))
    listed = {file["path"]: file for file in manifest["files"]}
    assert listed["bad.png"]["status"] == "FAILED"
    assert listed["bad.png"]["reason"].startswith("IMAGE_")
    assert listed["a/one.png"]["sha256"] == hashlib.sha256(one).hexdigest()
    assert services.allocate_count == 3
    assert len(services.checkpoints) == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"on_image_failure": "fail"}, "IMAGE_UNREADABLE"),
        ({"archive_ref": "only bad"}, "IMAGES_ALL_FAILED"),
        ({"text": "ሰላም"}, "TEXT_GLYPH_MISSING"),
        ({"archive_ref": "no zip"}, "ARCHIVE_NOT_ZIP"),
    ],
)
async def test_image_watermark_refuses_with_a_reason(
    agent: ProcessHost, order: MakeOrder, store: Store, changes: dict[str, str], reason: str
) -> None:
    """Bad pictures, where they shall fail all, a text without glyphs, and what is no archive."""
    bad = (CASES / "image/png-broken-data.png").read_bytes()
    await kept(store, "in", zipped({"good.png": picture(1), "bad.png": bad}))
    await kept(store, "only bad", zipped({"bad.png": bad}))
    await kept(store, "no zip", b"<html></html>")
    given = {"archive_ref": "in", "collection_ref": "out", "text": "text", **changes}
    outcome = await agent.run(
        order("image.watermark", given=given), RecordedServices(store), asyncio.Event()
    )
    assert isinstance(outcome, Failed)
    assert (outcome.failure.reason, outcome.failure.retryable) == (reason, False)


async def test_a_resumed_watermark_redoes_no_finished_picture(
    agent: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """Killed behind its third checkpoint it goes on with the fourth; the ZIP is as if unbroken."""
    files = {f"{number}.png": picture(number * 20) for number in range(8)}
    await kept(store, "in", zipped(files))
    given = {"archive_ref": "in", "collection_ref": "out", "text": "text"}
    whole = await _whole(agent, order("image.watermark", given=given), store)
    stop, services = asyncio.Event(), RecordedServices(store)
    services.on_checkpoint = lambda count: stop.set() if count == 3 else None
    first = await agent.run(order("image.watermark", given=given), services, stop)
    assert isinstance(first, Stopped)
    done_before = len(services.checkpoints)
    assert 3 <= done_before < 8
    services.on_checkpoint = lambda _count: None
    resumed = order("image.watermark", given=given, checkpoint_json=services.checkpoint_json)
    outcome = done(await agent.run(resumed, services, asyncio.Event()))
    assert len(services.checkpoints) == 8
    assert outcome.artifact_count == 10
    assert len({one.relative_path for one in services.reported}) == 10
    assert await store.get(json.loads(outcome.output_json)["archive_ref"]) == whole


async def test_pictures_made_in_parallel_are_kept_in_order_and_resumed(
    agent: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """Enough of them for processes of their own: order, checkpoints and ZIP are as one by one."""
    files = {f"{number:02}.png": noise(number) for number in range(12)}
    await kept(store, "in", zipped(files))
    given = {"archive_ref": "in", "collection_ref": "out", "text": "text"}
    stop, services = asyncio.Event(), RecordedServices(store)
    services.on_checkpoint = lambda count: stop.set() if count == 4 else None
    await agent.run(order("image.watermark", given=given), services, stop)
    done_before = len(services.checkpoints)
    assert 4 <= done_before < 12
    services.on_checkpoint = lambda _count: None
    resumed = order("image.watermark", given=given, checkpoint_json=services.checkpoint_json)
    outcome = done(await agent.run(resumed, services, asyncio.Event()))
    assert len(services.checkpoints) == 12, "none that a checkpoint names is made again"
    resumed_zip = await store.get(json.loads(outcome.output_json)["archive_ref"])
    archive = zipfile.ZipFile(io.BytesIO(resumed_zip))
    assert archive.namelist() == sorted(files)
    watermarker = Watermarker("text")
    for name, data in files.items():
        assert archive.read(name) == watermarker.watermark_bytes(name, data).data


async def _whole(agent: ProcessHost, order: RunOrder, store: Store) -> bytes:
    """The ZIP of an attempt that nothing disturbs, in a work folder of its own."""
    folder = order.work_folder.with_name("undisturbed")
    folder.mkdir()
    undisturbed = dataclasses.replace(order, work_folder=folder)
    outcome = done(await agent.run(undisturbed, RecordedServices(store), asyncio.Event()))
    return await store.get(json.loads(outcome.output_json)["archive_ref"])


async def test_a_checkpoint_without_its_files_starts_anew(
    agent: ProcessHost, order: MakeOrder, store: Store
) -> None:
    """A work folder that was lost costs the work done so far, and nothing else."""
    await kept(store, "in", zipped({f"{number}.png": picture(number) for number in range(3)}))
    given = {"archive_ref": "in", "collection_ref": "out", "text": "text"}
    lost = json.dumps({"file_count": 2, "journal_bytes": 900, "zip_bytes": 700})
    resumed = order("image.watermark", given=given, checkpoint_json=lost)
    outcome = done(await agent.run(resumed, RecordedServices(store), asyncio.Event()))
    assert json.loads(outcome.output_json)["image_count"] == 3
