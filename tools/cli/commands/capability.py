"""`tdp capability`: lists what is installed, and runs one capability alone, without servers."""

import asyncio
import contextlib
import json
import signal
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from foundation.errors import InvalidArgumentError, NotFoundError
from foundation.logging import LogConfig, configure_logging
from node_agent.adapters.outbound.process_host import ProcessHost, ProcessHostConfig
from node_agent.adapters.outbound.process_host.local_services import LocalServices
from node_agent.adapters.outbound.transfers import TransferConfig
from node_agent.core.execution.ports import Failed, Outcome, RunOrder, Stopped
from node_agent.core.session.lease_clock import AttemptId
from node_agent.sdk import Capability, installed_references, load_capabilities
from node_agent.sdk.discovery import LoadedCapability
from tools.cli.output import ExitCode, err, plain, show, table, write_json

app = typer.Typer(no_args_is_help=True, help="Run a capability alone, or list those installed.")

_COLLECTION: Final = "local"
_WATERMARK: Final = "image.watermark"


@dataclass(frozen=True, slots=True)
class _Run:
    """One run alone: what runs, on which document, with which input file."""

    loaded: LoadedCapability
    document: dict[str, Any]
    inputs: dict[str, Path]
    output: Path


@app.command("list")
def list_capabilities(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List the installed capabilities."""
    found = [loaded.capability for loaded in load_capabilities(installed_references()).values()]
    documents = [
        {"name": one.name, "version": one.version, "mode": one.mode, "resumes": one.supports_resume}
        for one in found
    ]

    def render(console: Console) -> None:
        listed = table("Capabilities", "Name", "Version", "Mode", "Resumes")
        for one in found:
            resumes = "yes" if one.supports_resume else "no"
            listed.add_row(one.name, one.version, one.mode, resumes)
        console.print(listed)

    show(documents, as_json=as_json, render=render)


@app.command("run")
def run(
    *,
    name: Annotated[str, typer.Argument(help="NAME or NAME@VERSION, such as archive.clean.")],
    input_file: Annotated[
        Path | None,
        typer.Option("--input", exists=True, dir_okay=False, help="The file to work on."),
    ] = None,
    parameters: Annotated[
        list[str] | None, typer.Option("--param", help="An input field, as key=value; repeatable.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", file_okay=False, help="The folder for results.")
    ] = Path("output"),
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Run one capability on a file here, in a child process as an agent would, without servers.

    Exits with 0 when done, 2 when the input is refused, 1 when it failed in another way.
    """
    configure_logging(LogConfig(process="tdp", format="console", level="warning"))
    loaded = _find(name)
    document = _document(loaded.capability, parameters or [])
    with tempfile.TemporaryDirectory(prefix="tdp-run-") as folder:
        file = _archive_of(loaded.capability, input_file, Path(folder))
        made = _Run(loaded, document | _references(loaded.capability, file), {}, output)
        if file is not None:
            made.inputs[file.name] = file
        outcome, services = asyncio.run(_run(made, Path(folder), shown=not as_json))
    _report(outcome, services, output, as_json=as_json)
    raise typer.Exit(_exit_code(outcome))


def _find(name: str) -> LoadedCapability:
    wanted, _, version = name.partition("@")
    found = [
        loaded
        for (one, one_version), loaded in load_capabilities(installed_references()).items()
        if one == wanted and version in {"", one_version}
    ]
    if not found:
        raise NotFoundError(
            f"no capability {name} is installed; `tdp capability list` names those that are",
            reason="CAPABILITY_UNKNOWN",
        )
    return found[-1]


def _document(capability: Capability, parameters: list[str]) -> dict[str, Any]:
    """The input document from key=value pairs: JSON, or text where the field is text."""
    schema = json.loads(capability.declaration.input_schema_json).get("properties", {})
    document: dict[str, Any] = {}
    for parameter in parameters:
        key, separator, text = parameter.partition("=")
        if not separator:
            raise InvalidArgumentError.of_field("--param", f"{parameter!r} is not key=value")
        is_text = schema.get(key, {}).get("type") == "string"
        document[key] = text if is_text else _value(text)
    return document


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _references(capability: Capability, file: Path | None) -> dict[str, str]:
    """The references that the capability's input has fields for."""
    known = capability.input_model.model_fields
    given = {"archive_ref": file.name if file else "", "collection_ref": _COLLECTION}
    return {key: value for key, value in given.items() if key in known and value}


def _archive_of(capability: Capability, file: Path | None, folder: Path) -> Path | None:
    """The input file; a single picture in an archive of its own where one is expected."""
    if file is None or capability.name != _WATERMARK:
        return file
    from node_agent.capabilities.image_watermark import HEAD_BYTES, is_image

    with file.open("rb") as content:
        head = content.read(HEAD_BYTES)
    if not is_image(file.name, head):
        return file
    wrapped = folder / f"{file.name}.zip"
    with zipfile.ZipFile(wrapped, "w") as archive:
        archive.write(file, file.name)
    return wrapped


async def _run(made: _Run, folder: Path, *, shown: bool) -> tuple[Outcome, LocalServices]:
    capability = made.loaded.capability
    key = capability.name, capability.version
    config = ProcessHostConfig(slot_count=1, transfers=TransferConfig(file_grants=True))
    host = ProcessHost({key: made.loaded}, config)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    with _bar(capability.name, shown=shown) as on_progress:
        services = LocalServices(made.inputs, made.output, on_progress)
        try:
            return await host.run(_order(made, folder), services, stop), services
        finally:
            await host.stop()


def _order(made: _Run, folder: Path) -> RunOrder:
    capability = made.loaded.capability
    work_folder = folder / "work"
    work_folder.mkdir()
    return RunOrder(
        attempt_id=AttemptId("local"),
        lease_version=1,
        task_id="local",
        execution_id="local",
        step_key=capability.name,
        item_index=-1,
        attempt_number=1,
        capability=capability.name,
        capability_version=capability.version,
        input_json=json.dumps(made.document),
        checkpoint_json=None,
        work_folder=work_folder,
        run_timeout_s=None,
        heartbeat_timeout_s=None,
        memory_bytes_max=None,
    )


@contextlib.contextmanager
def _bar(name: str, *, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not shown or not err.is_terminal:
        yield lambda _percent, _message: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}"),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(name, total=100, message="")
        yield lambda percent, message: progress.update(
            task, completed=percent, message=plain(message)
        )


def _report(outcome: Outcome, services: LocalServices, output: Path, *, as_json: bool) -> None:
    if as_json:
        write_json(_described(outcome, services, output))
    if isinstance(outcome, Failed):
        err.print(f"[bold red]{outcome.failure.reason}[/] {plain(outcome.failure.message)}")
        if outcome.failure.log_tail and outcome.failure.retryable:
            err.print(plain(outcome.failure.log_tail))
    elif isinstance(outcome, Stopped):
        err.print("[yellow]stopped[/]")
    elif not as_json:
        show({}, as_json=False, render=lambda console: _render(console, services, output))


def _render(console: Console, services: LocalServices, output: Path) -> None:
    listed = table("Results", "File", "Bytes", "SHA-256")
    for artifact in services.artifacts.values():
        file = str(output / artifact.relative_path)
        listed.add_row(plain(file), f"{artifact.size_bytes:,}", artifact.sha256.hex())
    console.print(listed)


def _described(outcome: Outcome, services: LocalServices, output: Path) -> dict[str, Any]:
    usage = {
        "cpu_time_ms": outcome.usage.cpu_time_ms,
        "memory_bytes_max": outcome.usage.memory_bytes_max,
        "duration_ms": outcome.usage.duration_ms,
    }
    if isinstance(outcome, Stopped):
        return {"status": "STOPPED", "usage": usage}
    if isinstance(outcome, Failed):
        failure = outcome.failure
        described = {
            "reason": failure.reason,
            "message": failure.message,
            "retryable": failure.retryable,
            "log_tail": failure.log_tail,
        }
        return {"status": "FAILED", "failure": described, "usage": usage}
    artifacts = [
        {
            "relative_path": artifact.relative_path,
            "file": str(output / artifact.relative_path),
            "media_type": artifact.media_type,
            "size_bytes": artifact.size_bytes,
            "sha256": artifact.sha256.hex(),
        }
        for artifact in services.artifacts.values()
    ]
    output_document = json.loads(outcome.output_json)
    return {
        "status": "SUCCEEDED",
        "output": output_document,
        "artifacts": artifacts,
        "usage": usage,
    }


def _exit_code(outcome: Outcome) -> ExitCode:
    if isinstance(outcome, Failed):
        return ExitCode.FAILED if outcome.failure.retryable else ExitCode.REFUSED
    return ExitCode.INTERRUPTED if isinstance(outcome, Stopped) else ExitCode.DONE
