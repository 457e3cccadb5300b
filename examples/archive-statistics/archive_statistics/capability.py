"""Declares archive.statistics: files, bytes and words of an archive, as a table."""

import csv
import io
import os
import zipfile
from pathlib import Path

from pydantic import BaseModel, Field

from node_agent.sdk import BlockingContext, Fatal, capability

FILES_PER_CHECKPOINT = 10


class Given(BaseModel):
    """The input; its JSON Schema is declared to the control plane."""

    archive_ref: str = Field(min_length=1, description="The ZIP to look at.")
    collection_ref: str = Field(min_length=1, description="The collection to write to.")


class Statistics(BaseModel):
    """The output; the next steps of a workflow read its fields."""

    file_count: int = Field(ge=0, description="Files in the archive.")
    word_count: int = Field(ge=0, description="Words in those that are texts in UTF-8.")
    table_ref: str = Field(description="A line for each file, CSV.")


class Counted(BaseModel):
    """The checkpoint: what is counted so far, and how much of the table that is."""

    file_count: int = 0
    word_count: int = 0
    table_bytes: int = 0


@capability("archive.statistics", version="1", supports_resume=True)
def archive_statistics(ctx: BlockingContext, given: Given) -> Statistics:
    """Count; what is no ZIP is refused."""
    source = ctx.open_input(given.archive_ref)
    counted = ctx.last_checkpoint_as(Counted) or Counted()
    table = ctx.work_folder / "files.csv"
    try:
        with zipfile.ZipFile(source) as archive:
            counted = _count(ctx, archive, table, counted)
    except zipfile.BadZipFile as error:
        raise Fatal("ARCHIVE_NOT_ZIP", f"the archive is no ZIP: {error}; send another") from error
    placed = ctx.artifacts(given.collection_ref).put(
        "statistics/files.csv", table, "statistics", "text/csv"
    )
    return Statistics(
        file_count=counted.file_count,
        word_count=counted.word_count,
        table_ref=placed.resource_ref,
    )


def _count(
    ctx: BlockingContext, archive: zipfile.ZipFile, table: Path, counted: Counted
) -> Counted:
    """Count what is not counted yet; the table is cut to what the checkpoint knows of it."""
    files = [one for one in archive.infolist() if not one.is_dir()]
    with table.open("ab") as lines:
        lines.truncate(counted.table_bytes)
        for number, file in enumerate(files[counted.file_count :], counted.file_count + 1):
            ctx.raise_if_cancelled()
            words = _words(archive.read(file))
            lines.write(_line(file.filename, file.file_size, words))
            lines.flush()
            counted = Counted(
                file_count=number,
                word_count=counted.word_count + (words or 0),
                table_bytes=lines.tell(),
            )
            ctx.progress(95 * number / len(files), file.filename)
            if number % FILES_PER_CHECKPOINT == 0:
                # What a checkpoint rests on has to be as durable as the checkpoint.
                os.fsync(lines.fileno())
                ctx.checkpoint(counted)
    ctx.log.info("counted", files=counted.file_count, words=counted.word_count)
    return counted


def _words(content: bytes) -> int | None:
    """The words of a text, None for what is none."""
    try:
        return len(content.decode("utf-8").split())
    except UnicodeDecodeError:
        return None


def _line(name: str, size_bytes: int, words: int | None) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow([name, size_bytes, "" if words is None else words])
    return line.getvalue().encode()
