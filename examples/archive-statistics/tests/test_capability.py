"""archive.statistics, one attempt at a time, without an agent or any server."""

import io
import zipfile

from archive_statistics.capability import Given, archive_statistics
from node_agent.testing import RunCapability

GIVEN = Given(archive_ref="archive", collection_ref="results")
TABLE = "statistics/files.csv"


def archive_of(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_words_are_counted(run_capability: RunCapability) -> None:
    """Texts have words, other files have none."""
    archive = archive_of(text=b"one two two", picture=b"\xff\xd8")
    done = run_capability(archive_statistics, GIVEN, inputs={"archive": archive})
    assert (done.output.file_count, done.output.word_count) == (2, 3)
    assert done.artifacts[TABLE].read_text().split() == ["text,11,3", "picture,2,"]


def test_what_is_no_archive_is_refused(run_capability: RunCapability) -> None:
    """The failure is final and says why."""
    failed = run_capability(archive_statistics, GIVEN, inputs={"archive": b"no archive"})
    assert (failed.failure.reason, failed.failure.retryable) == ("ARCHIVE_NOT_ZIP", False)


def test_nothing_is_counted_twice(run_capability: RunCapability) -> None:
    """Stopped after a checkpoint and resumed, it counts the rest only."""
    inputs = {"archive": archive_of(**{f"file-{n:02}": b"a word" for n in range(25)})}
    stopped = run_capability(archive_statistics, GIVEN, inputs=inputs, stop_after_checkpoint=2)
    assert (stopped.status, stopped.checkpoints[-1]["file_count"]) == ("STOPPED", 20)
    done = run_capability(archive_statistics, GIVEN, inputs=inputs, resume=stopped)
    assert (done.output.file_count, done.output.word_count) == (25, 50)
    assert done.checkpoints == ()
    assert len(done.artifacts[TABLE].read_text().splitlines()) == 25
