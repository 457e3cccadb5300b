"""What a data folder remembers between two starts: ports, secrets, and who runs it now."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.dev_stack.errors import FolderInUseError, StateFileError

_STATE_FILE: Final = "stack.json"
_LOCK_FILE: Final = "stack.lock"


@dataclass(frozen=True, slots=True)
class StackState:
    """Ports last used (0: none yet) and the secrets made for this folder."""

    postgres_password: str
    nats_password: str
    s3_access_key: str
    s3_secret_key: str
    postgres_port: int = 0
    nats_port: int = 0
    s3_port: int = 0


def new_state() -> StackState:
    """Make fresh secrets; each is safe inside a URL without quoting."""
    return StackState(
        postgres_password=secrets.token_hex(24),
        nats_password=secrets.token_hex(24),
        s3_access_key=secrets.token_hex(10),
        s3_secret_key=secrets.token_hex(24),
    )


def load_state(folder: Path) -> StackState:
    """Read the folder's state, or make and store a new one if the folder has none.

    Raises:
        StateFileError: the file is there and is not one of ours.
    """
    path = folder / _STATE_FILE
    try:
        return StackState(**json.loads(path.read_text()))
    except FileNotFoundError:
        state = new_state()
        save_state(folder, state)
        return state
    except (TypeError, ValueError, OSError) as error:
        raise StateFileError(path, str(error)) from error


def save_state(folder: Path, state: StackState) -> None:
    """Replace the folder's state in one step, readable by its owner alone."""
    path = folder / _STATE_FILE
    text = json.dumps(dataclasses.asdict(state), indent=2)
    replace_private_file(path, text)


def replace_private_file(path: Path, text: str) -> None:
    """Write `text` to `path` durably and in one step, readable by its owner alone."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the folder while its servers run; the system lets go if this process dies.

    Raises:
        FolderInUseError: another process holds it.
    """
    descriptor = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(folder) from None
        yield
    finally:
        os.close(descriptor)
