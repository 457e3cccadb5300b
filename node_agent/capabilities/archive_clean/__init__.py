"""archive.clean: takes junk out of a ZIP without re-packing, and refuses whatever is unsound."""

from node_agent.capabilities.archive_clean.capability import archive_clean as capability
from node_agent.capabilities.archive_clean.clean import clean_archive
from node_agent.capabilities.archive_clean.limits import CleanLimits
from node_agent.capabilities.archive_clean.refusals import (
    ArchiveRefusedError,
    CleanCancelledError,
    CleanOptionsError,
    RefusalReason,
)
from node_agent.capabilities.archive_clean.report import CleanReport, KeptEntry, RemovedEntry
from node_agent.capabilities.archive_clean.selection import CleanOptions

__all__ = [
    "ArchiveRefusedError",
    "CleanCancelledError",
    "CleanLimits",
    "CleanOptions",
    "CleanOptionsError",
    "CleanReport",
    "KeptEntry",
    "RefusalReason",
    "RemovedEntry",
    "capability",
    "clean_archive",
]
