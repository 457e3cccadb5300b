"""`tdp node install`: writes the agent's systemd unit, its settings and its join token."""

import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ValidationError
from rich.console import Console

from foundation.errors import FailedPreconditionError, InvalidArgumentError
from node_agent.systemd.unit import (
    JOIN_TOKEN_PATH,
    SETTINGS_PATH,
    UNIT_PATH,
    Credential,
    UnitOptions,
    settings_text,
    unit_text,
)
from tools.cli.options import Json
from tools.cli.output import plain, show

_PUBLIC: Final = 0o644
_SECRET: Final = 0o600
_TOKEN_PREFIX: Final = "tdp_join_"  # noqa: S105 - how each begins
# The unit's ProtectHome hides these folders from the agent.
_HIDDEN: Final = tuple(Path("/", *names) for names in (("root",), ("home",), ("run", "user")))
_AFTERWARDS: Final = "systemctl daemon-reload && systemctl enable --now tdp-agent"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to be written; one that is `kept` is an operator's once it is there."""

    path: Path
    text: str
    mode: int
    kept: bool = False

    def shown(self) -> dict[str, str]:
        """Return it for people and programs, a secret without its content."""
        text = "(secret)" if self.mode == _SECRET else self.text
        return {"path": str(self.path), "mode": f"{self.mode:04o}", "text": text}


def install(
    *,
    control_plane: Annotated[
        str, typer.Option(help="Where the control plane serves gRPC: HOST:PORT, or several.")
    ],
    name: Annotated[
        str, typer.Option(help="Name of the node.", show_default="this machine's")
    ] = "",
    join_token_file: Annotated[
        Path | None, typer.Option(help="File with the join token (tdp_join_…), or - for input.")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS to the control plane.")] = False,
    tls_ca: Annotated[Path | None, typer.Option(help="PEM of the CA to trust.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM chain of this agent.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key of that certificate.")] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="Let capabilities use the GPUs.")] = False,
    python: Annotated[
        Path | None,
        typer.Option(help="Interpreter with the agent installed.", show_default="this one"),
    ] = None,
    into: Annotated[Path, typer.Option(help="Write under this folder instead of /.")] = Path("/"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace settings that are there already.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show it.")] = False,
    as_json: Json = False,
) -> None:
    """Write the systemd unit of a node agent, its settings, and its join token.

    The unit is written anew each time; settings that are there are kept, unless --replace is
    given. Nothing is started.

    Example:
      tdp node install --control-plane control.example.org:7300 --join-token-file token.txt
    """
    interpreter = python or Path(sys.executable)
    _check_interpreter(interpreter)
    secured = tls or any((tls_ca, tls_certificate, tls_key))
    settings = _settings(control_plane, name or socket.gethostname(), tls=secured)
    credentials = _credentials(
        {"tls-ca": tls_ca, "tls-certificate": tls_certificate, "tls-private-key": tls_key}
    )
    options = UnitOptions(interpreter, credentials, gpus)
    planned = [
        PlannedFile(UNIT_PATH, unit_text(options), _PUBLIC),
        PlannedFile(SETTINGS_PATH, settings_text(settings), _PUBLIC, kept=True),
    ]
    if join_token_file is not None:
        planned.append(PlannedFile(JOIN_TOKEN_PATH, _token(join_token_file), _SECRET))
    if dry_run:
        document = {"written": [], "files": [one.shown() for one in planned]}
        show(document, as_json=as_json, render=lambda console: _render_plan(console, planned))
        return
    written = _write(planned, into, replace=replace)
    done = {"written": [str(path) for path in written]}
    show(done, as_json=as_json, render=lambda console: _render_done(console, written, into))


def _settings(control_plane: str, name: str, *, tls: bool) -> dict[str, str]:
    """Return the settings as variables, judged by the agent's own rules."""
    from node_agent.settings import AgentSettings

    try:
        AgentSettings(control_plane=control_plane, node_name=name, tls=tls)
    except ValidationError as error:
        problems = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
        raise InvalidArgumentError(f"the agent would refuse this: {problems}") from error
    variables = {"TDP_AGENT_CONTROL_PLANE": control_plane, "TDP_AGENT_NODE_NAME": name}
    if tls:
        variables["TDP_AGENT_TLS"] = "true"
    return variables


def _credentials(paths: dict[str, Path | None]) -> tuple[Credential, ...]:
    given = {name: path for name, path in paths.items() if path is not None}
    if ("tls-certificate" in given) != ("tls-private-key" in given):
        raise InvalidArgumentError("mTLS needs both --tls-certificate and --tls-key")
    for path in given.values():
        if not path.is_file():
            raise InvalidArgumentError(f"{path} is not there: name a PEM file")
    return tuple(Credential(name, path.absolute()) for name, path in given.items())


def _check_interpreter(interpreter: Path) -> None:
    if not interpreter.is_absolute():
        raise InvalidArgumentError(f"--python {interpreter}: systemd needs an absolute path")
    for path in (interpreter, interpreter.resolve()):
        if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            raise FailedPreconditionError(
                f"{path} is in a home folder, which the unit hides from the agent: install the "
                "agent elsewhere, as in /opt/tdp, and name its interpreter by --python"
            )


def _token(file: Path) -> str:
    try:
        token = (sys.stdin.read() if file == Path("-") else file.read_text("utf-8")).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{file} cannot be read: {error}") from error
    if not token.startswith(_TOKEN_PREFIX):
        raise InvalidArgumentError(f"{file} holds no join token: one begins with {_TOKEN_PREFIX}")
    return f"{token}\n"


def _write(planned: Iterable[PlannedFile], into: Path, *, replace: bool) -> list[Path]:
    """Write the files under a folder; return those that were written."""
    written: list[Path] = []
    for one in planned:
        file = into / one.path.relative_to("/")
        if one.kept and file.exists() and not replace:
            continue
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            _write_one(file, one)
        except OSError as error:
            raise FailedPreconditionError(
                f"{file} cannot be written ({error.strerror}): become root, or name another "
                "folder by --into"
            ) from error
        written.append(file)
    return written


def _write_one(file: Path, planned: PlannedFile) -> None:
    """Write a file whole, never readable by more than it shall be."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, planned.mode)
    with os.fdopen(handle, "w", encoding="utf-8") as content:
        os.fchmod(content.fileno(), planned.mode)
        content.write(planned.text)
    fresh.replace(file)


def _render_plan(console: Console, planned: list[PlannedFile]) -> None:
    for one in planned:
        shown = one.shown()
        console.print(f"[bold]# {plain(shown['path'])} ({shown['mode']})[/]")
        console.print(plain(shown["text"]), soft_wrap=True)


def _render_done(console: Console, written: list[Path], into: Path) -> None:
    for path in written:
        console.print(f"wrote {plain(str(path))}", soft_wrap=True)
    if into == Path("/"):
        console.print(f"Start it now: [bold]{_AFTERWARDS}[/]")
