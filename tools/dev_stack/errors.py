"""Errors of the embedded servers, each naming the server, the value and the way out."""

from __future__ import annotations

from pathlib import Path

from foundation.errors import ErrorCode, TdpError


class DevStackError(TdpError):
    """Base of all errors of the embedded servers."""

    reason = "DEV_STACK"


class UnsupportedPlatformError(DevStackError):
    """The machine lacks what ties a server's life to its parent's (Linux only)."""

    reason = "DEV_STACK_UNSUPPORTED_PLATFORM"
    code = ErrorCode.FAILED_PRECONDITION

    def __init__(self, platform: str) -> None:
        super().__init__(
            f"the embedded servers need Linux, this is {platform!r}; "
            "point the processes at existing servers by settings instead"
        )


class ProgramMissingError(DevStackError):
    """A server's program is not in this Python environment."""

    reason = "DEV_STACK_PROGRAM_MISSING"
    code = ErrorCode.FAILED_PRECONDITION

    def __init__(self, program: str, package: str, place: Path) -> None:
        super().__init__(
            f"{program!r} is not at {place}; install the package {package!r} "
            "into the environment that runs this"
        )


class FolderInUseError(DevStackError):
    """Another living process runs its servers on the same folder."""

    reason = "DEV_STACK_FOLDER_IN_USE"
    retryable = True
    code = ErrorCode.ALREADY_EXISTS

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the servers of {folder} are already run by another process; "
            "stop that process or give another data folder"
        )


class StateFileError(DevStackError):
    """The remembered ports and secrets of a folder cannot be read."""

    reason = "DEV_STACK_STATE_UNREADABLE"
    code = ErrorCode.DATA_LOSS

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} cannot be used ({problem}); restore it, or remove the whole folder "
            "to start afresh: the database's password is kept only there"
        )


class ServerStartError(DevStackError):
    """A server stopped, or was not ready in time, while it was being started."""

    reason = "DEV_STACK_SERVER_NOT_STARTED"
    retryable = True
    code = ErrorCode.UNAVAILABLE

    def __init__(self, server: str, problem: str, log_file: Path, log_tail: str) -> None:
        super().__init__(
            f"{server} did not start: {problem}; its log is {log_file} and ends with:\n{log_tail}"
        )


class ServerNotRunningError(DevStackError):
    """Something was asked of a server that is not running."""

    reason = "DEV_STACK_SERVER_NOT_RUNNING"
    code = ErrorCode.FAILED_PRECONDITION

    def __init__(self, server: str) -> None:
        super().__init__(f"{server} is not running; start or restart it first")


class UnprivilegedUserError(DevStackError):
    """PostgreSQL refuses to run as root and no way of leaving root is open here."""

    reason = "DEV_STACK_NO_UNPRIVILEGED_USER"
    code = ErrorCode.FAILED_PRECONDITION

    def __init__(self, account: str, problem: str) -> None:
        super().__init__(
            f"PostgreSQL does not run as root, and it cannot be run as {account!r}: {problem}; "
            "run this as an ordinary user"
        )


class InvalidDatabaseNameError(DevStackError):
    """A database name that could not be used unquoted."""

    reason = "DEV_STACK_INVALID_DATABASE_NAME"
    code = ErrorCode.INVALID_ARGUMENT

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is no database name here; use 1 to 63 of a-z, 0-9 and _, "
            "beginning with a letter"
        )
