"""What a data folder remembers of TDP's own processes: secrets, ports and the application's id."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from foundation.secrets import KEY_BYTES, TokenKind, new_token
from foundation.signatures import SigningSecret
from tools.dev_stack import ports
from tools.dev_stack.errors import StateFileError
from tools.dev_stack.state import replace_private_file

_STATE_FILE: Final = "platform.json"
_PROVIDER_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PlatformSecrets:
    """Everything secret that TDP's processes and their clients share; never shown in errors."""

    key_ring: str = field(repr=False)
    admin_key: str = field(repr=False)
    submit_key: str = field(repr=False)
    client_key: str = field(repr=False)
    join_token: str = field(repr=False)
    callback_secret: str = field(repr=False)
    provider_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlatformState:
    """The folder's secrets, the ports last used by name, and what was registered."""

    secrets: PlatformSecrets
    chosen_ports: Mapping[str, int] = field(default_factory=dict)
    application_id: str = ""

    def with_ports(
        self, names: Iterable[str], is_free: Callable[[int], bool] = ports.is_free
    ) -> PlatformState:
        """Answer a port for each name: the last one where it is free, else a new one."""
        chosen: dict[str, int] = {}
        for name in names:
            port = self.chosen_ports.get(name, 0)
            while not port or port in chosen.values() or not is_free(port):
                port = ports.free_port()
            chosen[name] = port
        return dataclasses.replace(self, chosen_ports={**self.chosen_ports, **chosen})


def new_platform_secrets() -> PlatformSecrets:
    """Make fresh secrets."""
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")
    return PlatformSecrets(
        key_ring=f"1:{key}",
        admin_key=new_token(TokenKind.API_KEY),
        submit_key=new_token(TokenKind.API_KEY),
        client_key=new_token(TokenKind.API_KEY),
        join_token=new_token(TokenKind.JOIN),
        callback_secret=SigningSecret.generate().text,
        provider_secret=secrets.token_hex(_PROVIDER_SECRET_BYTES),
    )


def load_platform_state(folder: Path) -> PlatformState:
    """Read the folder's state, or make and store a new one if there is none.

    Raises:
        StateFileError: the file is there and is not one of ours.
    """
    path = folder / _STATE_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return PlatformState(
            secrets=PlatformSecrets(**document.pop("secrets")),
            **document,
        )
    except FileNotFoundError:
        state = PlatformState(new_platform_secrets())
        save_platform_state(folder, state)
        return state
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        raise StateFileError(path, str(error)) from error


def save_platform_state(folder: Path, state: PlatformState) -> None:
    """Replace the folder's state in one step, readable by its owner alone."""
    replace_private_file(folder / _STATE_FILE, json.dumps(dataclasses.asdict(state), indent=2))
