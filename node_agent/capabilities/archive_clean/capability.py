"""Declares archive.clean: the archive comes by its grant, the clean one and a manifest go out."""

import asyncio
import json
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from node_agent.capabilities.archive_clean.clean import clean_archive
from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.archive_clean.report import CleanReport
from node_agent.capabilities.archive_clean.selection import CleanOptions
from node_agent.sdk import Artifacts, Context, capability

ARCHIVE_PATH: Final = "clean/archive.zip"
MANIFEST_PATH: Final = "clean/manifest.json"
# The shares of the work, in per cent: the clean itself lies between the transfers.
_CLEAN_FROM, _CLEAN_TO = 10, 80


class CleanInput(BaseModel):
    """What to clean, and what else to keep or drop."""

    model_config = ConfigDict(extra="forbid")

    archive_ref: str = Field(min_length=1, description="The ZIP to clean.")
    collection_ref: str = Field(min_length=1, description="The collection to write to.")
    keep: tuple[str, ...] = Field(
        default=(), max_length=1_000, description="Globs of what stays in spite of all rules."
    )
    drop: tuple[str, ...] = Field(
        default=(), max_length=1_000, description="Globs of what goes besides junk."
    )
    drop_zero_byte_files: bool = Field(default=False, description="Whether empty files go too.")
    name_encoding: str | None = Field(
        default=None, description="The code page of unmarked names; without it, it is detected."
    )


class CleanOutput(BaseModel):
    """Where the results are, and what was done."""

    archive_ref: str = Field(description="The clean ZIP.")
    manifest_ref: str = Field(description="The list of kept and removed entries, JSON.")
    kept_count: int = Field(ge=0, description="Entries that were kept.")
    removed_count: int = Field(ge=0, description="Entries that were removed.")
    source_bytes: int = Field(ge=0, description="Size of the archive that came.")
    clean_bytes: int = Field(ge=0, description="Size of the clean archive.")


@capability("archive.clean", version="1", supports_resume=True)
async def archive_clean(ctx: Context, given: CleanInput) -> CleanOutput:
    """Clean one ZIP; a bad archive is refused with its reason and leaves nothing behind."""
    options = CleanOptions(
        keep=given.keep,
        drop=given.drop,
        drop_zero_byte_files=given.drop_zero_byte_files,
        name_encoding=given.name_encoding,
    )
    ctx.progress(0, "fetching the archive")
    source = await ctx.open_input(given.archive_ref)
    clean = ctx.work_folder / "archive.zip"
    report = await asyncio.to_thread(_clean, ctx, source, clean, options)
    manifest = ctx.work_folder / "manifest.json"
    await asyncio.to_thread(_write_manifest, report, manifest)
    ctx.progress(_CLEAN_TO, "uploading the clean archive")
    archive_ref, manifest_ref = await _upload(ctx.artifacts(given.collection_ref), clean, manifest)
    return CleanOutput(
        archive_ref=archive_ref,
        manifest_ref=manifest_ref,
        kept_count=len(report.kept),
        removed_count=len(report.removed),
        source_bytes=report.source_size_bytes,
        clean_bytes=report.clean_size_bytes,
    )


def _clean(ctx: Context, source: Path, clean: Path, options: CleanOptions) -> CleanReport:
    def progress(share: float) -> None:
        percent = _CLEAN_FROM + (_CLEAN_TO - _CLEAN_FROM) * share
        ctx.progress(percent, "copying what stays")

    return clean_archive(
        source, clean, options, CleanLimits(), progress=progress, cancelled=ctx.is_cancelled
    )


def _write_manifest(report: CleanReport, file: Path) -> None:
    file.write_text(
        json.dumps(report.as_document(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )


async def _upload(artifacts: Artifacts, clean: Path, manifest: Path) -> tuple[str, str]:
    async with asyncio.TaskGroup() as group:
        archive = group.create_task(
            artifacts.put(ARCHIVE_PATH, clean, "archive", "application/zip"), name="put archive"
        )
        listed = group.create_task(
            artifacts.put(MANIFEST_PATH, manifest, "manifest", "application/json"),
            name="put manifest",
        )
    return archive.result().resource_ref, listed.result().resource_ref
