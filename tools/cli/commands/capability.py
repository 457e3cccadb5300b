"""`tdp capability`: write one, try it alone, check what it owes, and run it on a stack."""

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

from foundation.logging import LogConfig, configure_logging
from node_agent.adapters.outbound.process_host import ProcessHost, ProcessHostConfig
from node_agent.adapters.outbound.process_host.local_services import LocalServices
from node_agent.adapters.outbound.transfers import TransferConfig
from node_agent.core.execution.ports import Failed, Outcome, Stopped, Succeeded
from node_agent.sdk import load_capabilities
from node_agent.sdk.discovery import LoadedCapability
from node_agent.testing.contract import POINTS_MAX, ContractOptions, Finding, check_capability
from node_agent.testing.orders import local_order
from node_agent.testing.rehearsal import Given
from tools.cli.capability.given import InputOptions, given_input
from tools.cli.capability.project import find_capability, references_of
from tools.cli.capability.scaffold import scaffold
from tools.cli.commands.capability_dev import dev
from tools.cli.options import Json
from tools.cli.output import ExitCode, err, out, plain, show, table, write_json

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Write a capability, try it alone, check what it owes, and run it on a stack.",
)

app.command("dev")(dev)
_WATERMARK: Final = "image.watermark"
Name = Annotated[str, typer.Argument(help="NAME or NAME@VERSION, such as archive.clean.")]
ProjectFolder = Annotated[
    Path,
    typer.Option("--project", file_okay=False, help="A project, installed or not."),
]
Document = Annotated[
    Path | None,
    typer.Option("--document", exists=True, dir_okay=False, help="The input as a JSON file."),
]
Parameters = Annotated[
    list[str] | None, typer.Option("--param", help="An input field, as key=value; repeatable.")
]
InputFile = Annotated[
    Path | None,
    typer.Option("--input", exists=True, dir_okay=False, help="The file to work on."),
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", help="A file for one of several fields, as FIELD=PATH; repeatable."),
]
_HERE: Final = Path()


@dataclass(frozen=True, slots=True)
class _Run:
    """One run alone: what runs, on which input, and where its results go."""

    loaded: LoadedCapability
    given: Given
    output: Path


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Dotted lower-case words, such as image.statistics.")],
    *,
    folder: Annotated[
        Path | None, typer.Option("--folder", file_okay=False, help="Where to write it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a package with a working capability: entry point, function, test and sample.

    Example:
      tdp capability new image.statistics
    """
    home, written = scaffold(name, folder)
    package = name.replace(".", "_")

    def render(console: Console) -> None:
        console.print(f"[bold]{plain(name)}[/] is in {plain(str(home))}; go on with:")
        for line in (
            f"cd {home}",
            "pytest",
            f"tdp capability run {name} --input samples/text.txt",
            f"tdp capability check {name} --input samples/text.txt",
            f"$EDITOR {package}/capability.py",
        ):
            console.print(f"  {plain(line)}", soft_wrap=True)

    document = {"name": name, "folder": str(home), "files": [str(one) for one in written]}
    show(document, as_json=as_json, render=render)


@app.command("list")
def list_capabilities(*, project: ProjectFolder = _HERE, as_json: Json = False) -> None:
    """List the capabilities that are installed, or of the project here."""
    found = [loaded.capability for loaded in load_capabilities(references_of(project)).values()]
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
    name: Name,
    *,
    input_file: InputFile = None,
    files: Files = None,
    parameters: Parameters = None,
    document: Document = None,
    output: Annotated[
        Path, typer.Option("--output", file_okay=False, help="The folder for results.")
    ] = Path("output"),
    project: ProjectFolder = _HERE,
    as_json: Json = False,
) -> None:
    """Run one capability on a file here, in a child process as an agent would, without servers.

    Exits with 0 when done, 2 when the input is refused, 1 when it failed in another way.

    Examples:
      tdp capability run archive.clean --input photos.zip
      tdp capability run image.watermark --input photo.jpg --param "text=© Ada"
    """
    configure_logging(LogConfig(process="tdp", format="console", level="warning"))
    loaded = find_capability(name, project)
    with tempfile.TemporaryDirectory(prefix="tdp-run-") as folder:
        file = _archive_of(loaded, input_file, Path(folder))
        options = InputOptions(document, parameters or (), file, files or ())
        made = _Run(loaded, given_input(loaded.capability, options), output)
        outcome, services = asyncio.run(_run(made, Path(folder), shown=not as_json))
    _report(outcome, services, output, as_json=as_json)
    raise typer.Exit(_exit_code(outcome))


@app.command("check")
def check(
    name: Name,
    *,
    input_file: InputFile = None,
    files: Files = None,
    parameters: Parameters = None,
    document: Document = None,
    points: Annotated[
        int, typer.Option(min=1, max=200, help="At how many points it is stopped, and killed.")
    ] = POINTS_MAX,
    bytes_may_differ: Annotated[
        bool,
        typer.Option("--bytes-may-differ", help="Compare only the paths of artifacts."),
    ] = False,
    project: ProjectFolder = _HERE,
    as_json: Json = False,
) -> None:
    """Check what a capability owes the platform, on an input that it can work on.

    Runs it in child processes, without servers: delivered twice, stopped and killed at points
    spread over its work, resumed, and on damaged input. Exits with 0 if all is kept, 1 if not.

    Example:
      tdp capability check archive.clean --input photos.zip
    """
    configure_logging(LogConfig(process="tdp", format="console", level="error"))
    loaded = find_capability(name, project)
    given = given_input(
        loaded.capability, InputOptions(document, parameters or (), input_file, files or ())
    )
    options = ContractOptions(points, bytes_may_differ)
    with tempfile.TemporaryDirectory(prefix="tdp-check-") as folder:
        work = _check(loaded, given, Path(folder), options, shown=not as_json)
        findings = asyncio.run(work)
    kept = all(one.passed is not False for one in findings)
    if as_json:
        listed = [
            {"name": one.name, "owed": one.owed, "passed": one.passed, "told": one.told}
            for one in findings
        ]
        key = loaded.capability.name, loaded.capability.version
        write_json({"capability": key[0], "version": key[1], "kept": kept, "findings": listed})
    raise typer.Exit(ExitCode.DONE if kept else ExitCode.FAILED)


async def _check(
    loaded: LoadedCapability, given: Given, folder: Path, options: ContractOptions, *, shown: bool
) -> list[Finding]:
    findings = []
    async for finding in check_capability(loaded, given, folder, options):
        findings.append(finding)
        if shown:
            _show_finding(finding)
    return findings


def _show_finding(finding: Finding) -> None:
    marks = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[yellow]–[/]"}
    out.print(f"{marks[finding.passed]} [bold]{finding.name}[/] {plain(finding.owed)}")
    out.print(f"  {plain(finding.told)}", soft_wrap=True)


def _archive_of(loaded: LoadedCapability, file: Path | None, folder: Path) -> Path | None:
    """The input file; a single picture in an archive of its own where one is expected."""
    if file is None or loaded.capability.name != _WATERMARK:
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
    config = ProcessHostConfig(
        slot_count=1,
        transfers=TransferConfig(file_grants=True),
        on_line=_show_line if shown else None,
    )
    host = ProcessHost({key: made.loaded}, config)
    work_folder = folder / "work"
    await asyncio.to_thread(work_folder.mkdir)
    order = local_order(capability, json.dumps(made.given.document), work_folder)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    with _bar(capability.name, shown=shown) as on_progress:
        services = LocalServices(made.given.files, made.output, on_progress)
        try:
            return await host.run(order, services, stop), services
        finally:
            await host.stop()


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


def _show_line(line: str) -> None:
    err.print(f"[dim]|[/] {plain(line)}", soft_wrap=True)


def _report(outcome: Outcome, services: LocalServices, output: Path, *, as_json: bool) -> None:
    if as_json:
        write_json(_described(outcome, services, output))
    if isinstance(outcome, Failed):
        said = f"[bold red]{outcome.failure.reason}[/] {plain(outcome.failure.message)}"
        err.print(said, soft_wrap=True)
        if as_json and outcome.failure.log_tail and outcome.failure.retryable:
            err.print(plain(outcome.failure.log_tail))
    elif isinstance(outcome, Stopped):
        err.print("[yellow]stopped[/]")
    elif not as_json:
        assert isinstance(outcome, Succeeded)
        _render(out, outcome, services, output)


def _render(console: Console, done: Succeeded, services: LocalServices, output: Path) -> None:
    console.print_json(done.output_json)
    used = done.usage
    megabytes = used.memory_bytes_max // 1024**2
    console.print(f"{used.duration_ms} ms, CPU {used.cpu_time_ms} ms, {megabytes} MiB", style="dim")
    if not services.artifacts:
        return
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
