"""Artifacts of an attempt that went on in another process of its node."""

from control_plane.core.nodes.domain import ArtifactsReported, ReportedArtifact, WorkSucceeded
from tests.integration.control_plane.nodes.world import IDS, Attempt, World, event


async def test_uploads_of_the_process_before_count_for_a_resumed_attempt(world: World) -> None:
    """One that resumes reports old and new uploads; each is found where it was written."""
    attempt = await world.new_attempt(await world.add_node())
    before, after = IDS.new_id(), IDS.new_id()
    await _allocate(world, attempt, before, "done.png", "half.png")
    await _allocate(world, attempt, after, "half.png")
    report = _reported((before, "done.png"), (after, "half.png"))
    result = WorkSucceeded("{}", artifact_count=2, collection_ref="c")

    (told, ended), aftermath = await world.accept(
        [
            event(attempt, report, boot_id=after),
            event(attempt, result, boot_id=after),
        ]
    )

    assert (told.accepted, ended.accepted, ended.reason) == (True, True, "")
    assert aftermath.commits_artifacts
    assert await _statuses(world) == {
        (before, "done.png"): "REPORTED",
        (before, "half.png"): "ABANDONED",
        (after, "half.png"): "REPORTED",
    }


async def test_a_reference_that_was_not_allocated_counts_for_nothing(world: World) -> None:
    """A path with another reference is no upload, so the result is refused as incomplete."""
    attempt = await world.new_attempt(await world.add_node())
    boot_id = IDS.new_id()
    await _allocate(world, attempt, boot_id, "done.png")
    result = WorkSucceeded("{}", artifact_count=1, collection_ref="c")

    (_, ended), _ = await world.accept(
        [
            event(attempt, _reported((IDS.new_id(), "done.png")), boot_id=boot_id),
            event(attempt, result, boot_id=boot_id),
        ]
    )

    assert (ended.accepted, ended.reason) == (False, "ARTIFACT_COUNT_MISMATCH")


async def test_one_reference_for_all_processes_is_the_reporting_ones(world: World) -> None:
    """A provider may answer one reference for a path; the reporting process's place is meant."""
    attempt = await world.new_attempt(await world.add_node())
    before, after = IDS.new_id(), IDS.new_id()
    await _allocate(world, attempt, before, "a.png", ref="same")
    await _allocate(world, attempt, after, "a.png", ref="same")
    fact = ArtifactsReported([ReportedArtifact("a.png", "same", 5, b"s" * 32, "image/png")])

    await world.accept([event(attempt, fact, boot_id=after)])

    assert await _statuses(world) == {(before, "a.png"): "ABANDONED", (after, "a.png"): "REPORTED"}


async def _allocate(
    world: World, attempt: Attempt, boot_id: str, *paths: str, ref: str = ""
) -> None:
    for path in paths:
        await world.database.fetch(
            "insert into artifacts (attempt_id, boot_id, relative_path, execution_id, step_key,"
            " item_index, collection_ref, resource_ref, type, media_type, size_bytes_max)"
            " values ($1, $2, $3, $4, 'work', -1, 'c', $5, 't', 'm', 10)",
            attempt.attempt_id,
            boot_id,
            path,
            attempt.execution_id,
            ref or _ref(boot_id, path),
        )


def _reported(*places: tuple[str, str]) -> ArtifactsReported:
    return ArtifactsReported(
        [
            ReportedArtifact(path, _ref(boot_id, path), 5, b"s" * 32, "image/png")
            for boot_id, path in places
        ]
    )


def _ref(boot_id: str, path: str) -> str:
    return f"ref:{boot_id}:{path}"


async def _statuses(world: World) -> dict[tuple[str, str], str]:
    rows = await world.rows("select boot_id::text, relative_path, status from artifacts")
    return {(boot_id, path): status for boot_id, path, status in rows}
