"""The agent's state folder: one agent at a time, its credential's file, its work folders."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

from node_agent.core.session.enrolment import SavedCredential
from node_agent.core.session.lease_clock import AttemptId
from node_agent.errors import StateFolderLockedError, StateFolderUnusableError

LOCK_NAME: Final = "agent.lock"
CREDENTIAL_NAME: Final = "credential.json"
WORK_NAME: Final = "work"


class StateFolder:
    """A folder that belongs to this process until it is closed."""

    def __init__(self, path: Path) -> None:
        """Nothing is touched before `open`."""
        self.path = path.absolute()
        self._work = self.path / WORK_NAME
        self._lock: int | None = None

    def open(self) -> Self:
        """Make the folder if it is missing, and lock it.

        Raises StateFolderLockedError (another agent runs there) or StateFolderUnusableError.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._work.mkdir(exist_ok=True, mode=0o700)
            lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(self.path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise _locked(self.path, holder) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
        self._lock = lock
        return self

    def close(self) -> None:
        """Let another agent use the folder. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- The credential, which outlives a lost journal. ---

    def load_credential(self) -> SavedCredential | None:
        """Read the credential's file; None if there is none; StateFolderUnusableError if bad."""
        file = self.path / CREDENTIAL_NAME
        try:
            return SavedCredential(**json.loads(file.read_text("utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(file, error) from error
        except (ValueError, TypeError) as error:
            raise StateFolderUnusableError(
                f"{file} is damaged: restore it from a backup, or delete it and enrol again "
                "under another node name"
            ) from error

    def save_credential(self, credential: SavedCredential) -> None:
        """Replace the credential's file; on disk when it returns, readable by its owner only."""
        file = self.path / CREDENTIAL_NAME
        text = json.dumps(asdict(credential), indent=1) + "\n"
        try:
            _write_durably(file, text.encode("utf-8"))
        except OSError as error:
            raise _unusable(file, error) from error

    # --- Work folders. ---

    def work_folder(self, attempt_id: AttemptId) -> Path:
        """Return where the attempt's own folder is, whether it is there or not."""
        return self._work / attempt_id

    def make_work_folder(self, attempt_id: AttemptId) -> Path:
        """Return the attempt's own folder, made if it is missing; OSError if that fails."""
        folder = self._work / attempt_id
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def remove_work_folder(self, attempt_id: AttemptId) -> None:
        """Remove the attempt's folder with all that is in it; what cannot be removed stays."""
        shutil.rmtree(self._work / attempt_id, ignore_errors=True)

    def remove_empty_work_folder(self, attempt_id: AttemptId) -> bool:
        """Remove the folder if it is empty or missing, quickly, and say whether it is gone."""
        try:
            (self._work / attempt_id).rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def remove_unknown_work_folders(self, known: Collection[AttemptId]) -> int:
        """Remove what attempts left that are no longer held; return their number."""
        strangers = [one for one in self._work.iterdir() if one.name not in known]
        for one in strangers:
            if one.is_dir() and not one.is_symlink():
                shutil.rmtree(one, ignore_errors=True)
            else:
                one.unlink(missing_ok=True)
        return len(strangers)

    def free_bytes(self) -> int:
        """Free disk in the state folder."""
        stats = os.statvfs(self.path)
        return stats.f_bavail * stats.f_frsize


def _write_durably(file: Path, content: bytes) -> None:
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unusable(path: Path, error: OSError) -> StateFolderUnusableError:
    if error.errno == errno.ENOSPC:
        return StateFolderUnusableError(f"{path}: the disk is full: free some space")
    return StateFolderUnusableError(
        f"{path} cannot be used ({error.strerror}): check its rights and its disk"
    )


def _locked(path: Path, holder: str) -> StateFolderLockedError:
    return StateFolderLockedError(
        f"state folder {path} is in use by the agent with process id {holder or 'unknown'}: "
        "give each agent a folder of its own"
    )
