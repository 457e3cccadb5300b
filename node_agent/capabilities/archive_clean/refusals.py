"""Why archive.clean turns an archive down, as typed, final errors."""

from enum import StrEnum

from foundation.errors import ErrorCode, TdpError

_SHOWN_CHARACTERS_MAX = 120


class RefusalReason(StrEnum):
    """What is wrong with the archive; stable, clients branch on it."""

    NOT_ZIP = "ARCHIVE_NOT_ZIP"
    TRUNCATED = "ARCHIVE_TRUNCATED"
    MALFORMED = "ARCHIVE_MALFORMED"
    ENCRYPTED = "ARCHIVE_ENCRYPTED"
    UNSAFE_PATH = "ARCHIVE_UNSAFE_PATH"
    SYMLINK = "ARCHIVE_SYMLINK"
    OVERLAPPING_ENTRIES = "ARCHIVE_OVERLAPPING_ENTRIES"
    TOO_LARGE = "ARCHIVE_TOO_LARGE"
    DUPLICATE_NAME = "ARCHIVE_DUPLICATE_NAME"
    UNDECODABLE_NAME = "ARCHIVE_UNDECODABLE_NAME"
    UNSUPPORTED_METHOD = "ARCHIVE_UNSUPPORTED_METHOD"
    CRC_MISMATCH = "ARCHIVE_CRC_MISMATCH"


class ArchiveRefusedError(TdpError):
    """The archive itself is bad: the same bytes will never be accepted."""

    reason = "ARCHIVE_REFUSED"
    code = ErrorCode.INVALID_ARGUMENT

    def __init__(self, reason: RefusalReason, message: str) -> None:
        """Keep the reason and a message that names entry, value and remedy."""
        super().__init__(message, reason=reason.value)
        self.refusal = reason

    def __reduce__(self) -> tuple[type["ArchiveRefusedError"], tuple[RefusalReason, str]]:
        """Survive the way out of the child process it is raised in."""
        return type(self), (self.refusal, self.message)


class CleanCancelledError(TdpError):
    """The caller's `cancelled` said so; nothing was left behind."""

    reason = "CLEAN_CANCELLED"
    code = ErrorCode.CANCELLED


class CleanOptionsError(TdpError):
    """An option of archive.clean that means nothing, whatever the archive."""

    reason = "CLEAN_OPTIONS_INVALID"
    code = ErrorCode.INVALID_ARGUMENT


def quoted(name: str | bytes) -> str:
    """The name as it may stand in a message or log: in quotes, escaped, and not endless."""
    shown = repr(name)
    if len(shown) <= _SHOWN_CHARACTERS_MAX:
        return shown
    return f"{shown[:_SHOWN_CHARACTERS_MAX]}… ({len(name)} in all)"
