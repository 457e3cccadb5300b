"""Declares image.watermark: the pictures of an archive one by one, each kept by a checkpoint."""

import asyncio
import json
from collections import deque
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.image_watermark.classification import FileKind
from node_agent.capabilities.image_watermark.options import Layout, WatermarkOptions
from node_agent.capabilities.image_watermark.refusals import ImageRefused, TextRefused
from node_agent.capabilities.image_watermark.results import (
    FileResult,
    FileStatus,
    ResultJournal,
    WorkCheckpoint,
    counts,
    manifest,
)
from node_agent.capabilities.image_watermark.source_files import (
    MEDIA_TYPES,
    SourceArchive,
    SourceFile,
)
from node_agent.capabilities.image_watermark.watermarker import ImageResult, Watermarker
from node_agent.capabilities.image_watermark.workers import (
    Maker,
    ProcessMaker,
    ThreadMaker,
    worker_count,
)
from node_agent.sdk import ArtifactRequest, Artifacts, Context, Fatal, capability

IMAGES_FOLDER: Final = "watermark/images/"
ZIP_PATH: Final = "watermark/images.zip"
MANIFEST_PATH: Final = "watermark/manifest.json"
ARTIFACT_TYPE: Final = "image"

# Grants last minutes, so only the next few pictures have one.
_RESERVED_AT_ONCE: Final = 20
_RESULT_ROOM_BYTES: Final = 1024 * 1024
_RESULT_GROWTH_MAX: Final = 3
_ARTIFACT_PATH_BYTES_MAX: Final = 1_024
_WORK_FROM, _WORK_TO = 5, 90


class WatermarkInput(BaseModel):
    """What to set on which pictures, and how it is to look."""

    model_config = ConfigDict(extra="forbid")

    archive_ref: str = Field(min_length=1, description="The ZIP of pictures.")
    collection_ref: str = Field(min_length=1, description="The collection to write to.")
    text: str = Field(min_length=1, description="The text, 1 to 100 characters.")
    layout: Layout = Field(default=Layout.TILE, description="Where the text goes.")
    opacity: float = Field(default=0.4, gt=0, le=1, description="Of the letters.")
    relative_size: float = Field(
        default=0.05, gt=0, le=1, description="Height of letters as a share of the shorter side."
    )
    angle_degrees: float | None = Field(
        default=None, ge=-90, le=90, description="Counter-clockwise; unset tilts tiles only."
    )
    on_image_failure: Literal["fail", "continue"] = Field(
        default="continue", description="Whether a bad picture fails all or is listed."
    )


class WatermarkOutput(BaseModel):
    """Where the results are, and how many there are."""

    image_count: int = Field(ge=0, description="Pictures that were written.")
    failed_count: int = Field(ge=0, description="Pictures that could not be.")
    passed_through_count: int = Field(ge=0, description="Files that are no pictures.")
    archive_ref: str = Field(description="The ZIP of pictures and passed-through files.")
    manifest_ref: str = Field(description="The list of all files with their fate, JSON.")


@capability("image.watermark", version="1", supports_resume=True)
async def image_watermark(ctx: Context, given: WatermarkInput) -> WatermarkOutput:
    """Watermark every picture; a restart redoes none that a checkpoint names."""
    options, watermarker = await asyncio.to_thread(_watermarker, given)
    ctx.progress(0, "fetching the archive")
    source = SourceArchive(await ctx.open_input(given.archive_ref), CleanLimits())
    files = await asyncio.to_thread(source.files)
    journal = ResultJournal(ctx.work_folder)
    await asyncio.to_thread(journal.recover, ctx.last_checkpoint_as(WorkCheckpoint))
    todo = [one for one in files[len(journal.results) :] if one.kind is not FileKind.PASS_THROUGH]
    count = worker_count(len(todo), sum(one.size_bytes for one in todo))
    maker = ProcessMaker(given.text, options, count) if count else ThreadMaker(watermarker)
    work = _Work(ctx, given, maker, source, journal)
    try:
        await work.run(files)
    finally:
        await maker.close()
    return await work.finish()


class _Work:
    """One attempt: several pictures are made at once, and kept in the archive's order."""

    def __init__(
        self,
        ctx: Context,
        given: WatermarkInput,
        maker: Maker,
        source: SourceArchive,
        journal: ResultJournal,
    ) -> None:
        self._ctx = ctx
        self._given = given
        self._maker = maker
        self._source = source
        self._journal = journal
        self._artifacts: Artifacts = ctx.artifacts(given.collection_ref)

    async def run(self, files: list[SourceFile]) -> None:
        """Bring every file that the journal does not have to its end."""
        todo = files[len(self._journal.results) :]
        # One more than can be made at once: while it is saved, nobody waits for the next.
        ahead = self._maker.at_once + 1
        making: deque[tuple[SourceFile, asyncio.Task[FileResult]]] = deque()
        async with asyncio.TaskGroup() as group:
            for number, file in enumerate(todo):
                if number % _RESERVED_AT_ONCE == 0:
                    await self._reserve(todo[number : number + _RESERVED_AT_ONCE])
                making.append(
                    (file, group.create_task(self._make(file), name=f"make {file.index}"))
                )
                if len(making) > ahead:
                    await self._save_next(making, len(files))
            while making:
                await self._save_next(making, len(files))

    async def _save_next(
        self, making: deque[tuple[SourceFile, asyncio.Task[FileResult]]], file_count: int
    ) -> None:
        file, made = making.popleft()
        await self._save(file, await made)
        self._tell(file.index + 1, file_count)

    async def _reserve(self, files: list[SourceFile]) -> None:
        """Ask for the places of the next pictures at once; a larger result asks again."""
        requests = [
            ArtifactRequest(
                f"{IMAGES_FOLDER}{file.path}",
                ARTIFACT_TYPE,
                media_type,
                _RESULT_ROOM_BYTES + _RESULT_GROWTH_MAX * file.size_bytes,
            )
            for file in files
            if (media_type := file.media_type) and self._fits(file)
        ]
        await self._artifacts.reserve(requests)

    def _tell(self, done: int, total: int) -> None:
        percent = _WORK_FROM + (_WORK_TO - _WORK_FROM) * done / max(total, 1)
        self._ctx.progress(percent, f"file {done} of {total}")

    async def _make(self, file: SourceFile) -> FileResult:
        """Unpack one file and watermark it if it is a picture."""
        self._ctx.raise_if_cancelled()
        unpacked, made = self._places(file)
        await asyncio.to_thread(self._source.unpack, file, unpacked, self._ctx.heartbeat)
        if file.kind is FileKind.PASS_THROUGH:
            unpacked.replace(made)
            return _result(file, FileStatus.PASSED_THROUGH)
        try:
            self._check_path(file)
            return _watermarked(file, await self._maker.make(unpacked, made))
        except ImageRefused as refusal:
            if self._given.on_image_failure == "fail":
                raise Fatal(refusal.reason, f"{file.path}: {refusal.message}") from refusal
            return _result(
                file, FileStatus.FAILED, reason=str(refusal.reason), message=refusal.message
            )
        finally:
            unpacked.unlink(missing_ok=True)

    def _check_path(self, file: SourceFile) -> None:
        if not self._fits(file):
            raise ImageRefused(
                "IMAGE_UNSUPPORTED_FORMAT",
                f"its path is longer than {_ARTIFACT_PATH_BYTES_MAX} bytes as a result;"
                " shorten its folders' names",
            )

    @staticmethod
    def _fits(file: SourceFile) -> bool:
        return len(f"{IMAGES_FOLDER}{file.path}".encode()) <= _ARTIFACT_PATH_BYTES_MAX

    async def _save(self, file: SourceFile, result: FileResult) -> None:
        """Upload a picture, put it into the ZIP, and save a checkpoint."""
        _, made = self._places(file)
        if result.media_type:
            artifact = await self._artifacts.put(
                f"{IMAGES_FOLDER}{file.path}", made, ARTIFACT_TYPE, result.media_type
            )
            result = result.model_copy(
                update={
                    "resource_ref": artifact.resource_ref,
                    "size_bytes": artifact.size_bytes,
                    "sha256": artifact.sha256.hex(),
                }
            )
        await asyncio.to_thread(self._keep, result, made)
        if result.status is not FileStatus.PASSED_THROUGH:
            await self._ctx.checkpoint(self._journal.checkpoint())

    def _keep(self, result: FileResult, made: Path) -> None:
        if result.status is not FileStatus.FAILED:
            # Most pictures are packed by their own format; the rest is worth the time.
            compress = result.media_type in {"", "image/bmp"}
            zipped = self._journal.zip.append(result.path, made, compress=compress)
            result = result.model_copy(update={"zipped": zipped})
        made.unlink(missing_ok=True)
        self._journal.add(result)

    def _places(self, file: SourceFile) -> tuple[Path, Path]:
        folder = self._ctx.work_folder
        return folder / file.work_name, folder / f"made-{file.work_name}"

    async def finish(self) -> WatermarkOutput:
        """Upload the ZIP and the manifest; raises Fatal if no picture at all could be made."""
        results = self._journal.results
        count = counts(results)
        image_count = count[FileStatus.WATERMARKED] + count[FileStatus.TOO_SMALL]
        _check_some_made(results, image_count)
        self._ctx.progress(_WORK_TO, "uploading the archive of pictures")
        listed = self._ctx.work_folder / "manifest.json"
        await asyncio.to_thread(_write_json, manifest(self._given.text, results), listed)
        await asyncio.to_thread(self._journal.zip.finish, self._journal.zipped())
        async with asyncio.TaskGroup() as group:
            archive = group.create_task(
                self._artifacts.put(ZIP_PATH, self._journal.zip.file, "archive", "application/zip"),
                name="put archive",
            )
            described = group.create_task(
                self._artifacts.put(MANIFEST_PATH, listed, "manifest", "application/json"),
                name="put manifest",
            )
        return WatermarkOutput(
            image_count=image_count,
            failed_count=count[FileStatus.FAILED],
            passed_through_count=count[FileStatus.PASSED_THROUGH],
            archive_ref=archive.result().resource_ref,
            manifest_ref=described.result().resource_ref,
        )


def _watermarker(given: WatermarkInput) -> tuple[WatermarkOptions, Watermarker]:
    """Judge text and options, before any picture is read."""
    try:
        options = WatermarkOptions(
            given.layout, given.opacity, given.relative_size, given.angle_degrees
        )
        return options, Watermarker(given.text, options)
    except TextRefused as refusal:
        raise Fatal(str(refusal.reason), refusal.message) from refusal


def _result(
    file: SourceFile, status: FileStatus, *, reason: str = "", message: str = ""
) -> FileResult:
    return FileResult(
        path=file.path,
        status=status,
        source_size_bytes=file.size_bytes,
        reason=reason,
        message=message,
    )


def _watermarked(file: SourceFile, made: ImageResult) -> FileResult:
    return FileResult(
        path=file.path,
        status=FileStatus.WATERMARKED if made.marked else FileStatus.TOO_SMALL,
        source_size_bytes=file.size_bytes,
        media_type=MEDIA_TYPES[made.format],
        width=made.width,
        height=made.height,
        frames=made.frames,
        notes=made.notes,
    )


def _check_some_made(results: list[FileResult], image_count: int) -> None:
    failed = [result for result in results if result.status is FileStatus.FAILED]
    if failed and not image_count:
        first = failed[0]
        raise Fatal(
            "IMAGES_ALL_FAILED",
            f"none of the {len(failed)} pictures could be watermarked; the first, {first.path},"
            f" failed with {first.reason}: {first.message}",
        )


def _write_json(document: object, file: Path) -> None:
    file.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
