"""The agent's systemd unit and its settings file, as texts; nothing is written here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

UNIT_PATH: Final = Path("/etc/systemd/system/tdp-agent.service")
SETTINGS_PATH: Final = Path("/etc/tdp-agent/agent.env")
JOIN_TOKEN_PATH: Final = Path("/etc/tdp-agent/join-token")
JOIN_TOKEN: Final = "join-token"  # noqa: S105 - the credential's name
_NO_GPUS: Final = "PrivateDevices=yes"
_WITH_GPUS: Final = """\
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-drm rw"""
_SETTINGS_HEADER: Final = """\
# Settings of the TDP node agent; `python -m node_agent check-config` judges them. No secrets here.
"""
_QUOTED: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})


@dataclass(frozen=True, slots=True)
class Credential:
    """A file that systemd reads as root and hands to the agent alone."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """What differs from machine to machine.

    `python` is the interpreter that has the agent installed; `credentials` come beside the join
    token, which is always looked for; `gpus` lets the agent and its children use them.
    """

    python: Path
    credentials: Sequence[Credential] = field(default=())
    gpus: bool = False


def unit_text(options: UnitOptions) -> str:
    """Return the unit."""
    template = Template(files(__package__).joinpath("tdp-agent.service").read_text("utf-8"))
    lines = [f"LoadCredential={JOIN_TOKEN}:{JOIN_TOKEN_PATH}"]
    # The token is needed once; with this, the service starts after it was deleted.
    lines.append(f"SetCredential={JOIN_TOKEN}:\\n")
    lines += [f"LoadCredential={one.name}:{_escaped(one.path)}" for one in options.credentials]
    # Of the settings only the unit can name the credentials' folder.
    lines.append(f"Environment=TDP_AGENT_JOIN_TOKEN_FILE=%d/{JOIN_TOKEN}")
    lines += [f"Environment={variable_of(one.name)}=%d/{one.name}" for one in options.credentials]
    return template.substitute(
        python=_escaped(options.python),
        settings_file=SETTINGS_PATH,
        credentials="\n".join(lines),
        devices=_WITH_GPUS if options.gpus else _NO_GPUS,
    )


def variable_of(credential: str) -> str:
    """Return the setting that names a credential's file: `tls-ca` is TDP_AGENT_TLS_CA_PATH."""
    return f"TDP_AGENT_{credential.replace('-', '_').upper()}_PATH"


def settings_text(variables: Mapping[str, str]) -> str:
    """Return the settings file, each value quoted as systemd reads it."""
    lines = [f'{name}="{value.translate(_QUOTED)}"\n' for name, value in variables.items()]
    return _SETTINGS_HEADER + "".join(lines)


def _escaped(path: Path) -> str:
    """Return a path as systemd reads it: a percent sign begins a specifier."""
    return str(path).replace("%", "%%")
