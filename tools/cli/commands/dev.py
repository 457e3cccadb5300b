"""`tdp dev`: the whole platform on this machine until Ctrl-C."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from foundation.errors import InvalidArgumentError
from tools.cli.connection import Connection
from tools.cli.options import Json, run
from tools.cli.output import err, out, plain, write_json
from tools.cli.stack_runner import connection_of, shown_platform, stop_signals, while_alive
from tools.dev_stack.platform import Platform, PlatformConfig

app = typer.Typer(rich_markup_mode="rich")
DATA_FOLDER: Final = Path(".data/dev")
CONTEXT_NAME: Final = "context.json"
API_DESCRIPTION_PATH: Final = "/openapi.json"
_SETTING: Final = re.compile(
    r"(?P<process>(?:agent|control-plane|gateway)(?:-\d+)?)\.(?P<variable>TDP_[A-Z0-9_]+)=(?P<value>.*)"
)
_SERVER_INFO: Final = "tdp.control.v1.SystemService/GetServerInfo"


@app.command()
def dev(
    *,
    data: Annotated[
        Path, typer.Option(help="Holds all data and secrets; kept, and used again.")
    ] = DATA_FOLDER,
    agents: Annotated[int, typer.Option(min=1, max=16, help="Node agents.")] = 2,
    control_planes: Annotated[int, typer.Option(min=1, max=8, help="Control planes.")] = 1,
    gateways: Annotated[int, typer.Option(min=1, max=8, help="Business gateways.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A setting of a process, as agent.VARIABLE=VALUE or agent-1.…; repeatable.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run PostgreSQL, NATS, S3, control plane, gateway and agents until Ctrl-C.

    Other commands find it by DATA/context.json. A second start uses the same data; a start after
    a crash, or after kill -9, goes on where it was.

    Examples:
      tdp dev
      tdp dev --data /tmp/tdp --agents 3 --control-planes 2
      tdp dev --set gateway.TDP_GATEWAY_CLEAN_WORKFLOW=archive-clean-and-count@1
    """
    config = PlatformConfig(
        data,
        agents=agents,
        control_planes=control_planes,
        gateways=gateways,
        variables=variables_of(settings or ()),
    )
    run(_dev(config, as_json=as_json))


def variables_of(settings: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Read PROCESS.VARIABLE=VALUE pairs; InvalidArgumentError for what is none."""
    found: dict[str, dict[str, str]] = {}
    for setting in settings:
        parts = _SETTING.fullmatch(setting)
        if parts is None:
            raise InvalidArgumentError.of_field(
                "--set",
                f"{setting!r} is not PROCESS.VARIABLE=VALUE, such as agent.TDP_AGENT_SLOTS=2",
            )
        found.setdefault(parts["process"], {})[parts["variable"]] = parts["value"]
    return found


async def _dev(config: PlatformConfig, *, as_json: bool) -> None:
    async with shown_platform(config) as platform:
        # Until here an interrupt breaks off the start; from here on it is the way to stop.
        with stop_signals() as stop:
            connection = connection_of(platform)
            context = (config.data_folder / CONTEXT_NAME).resolve()
            connection.save(context)
            if as_json:
                write_json(_document(platform, connection, context))
            else:
                _explain(platform, connection, context)
            await while_alive(platform, stop.wait())
        err.print("stopping …")


def _document(platform: Platform, connection: Connection, context: Path) -> dict[str, object]:
    return {
        "console_url": f"{connection.gateway_url}/console/",
        "gateway_url": connection.gateway_url,
        "gateway_api_key": connection.gateway_key,
        "api_description_url": connection.gateway_url + API_DESCRIPTION_PATH,
        "control_plane_target": connection.control_target,
        "control_plane_admin_key": connection.control_key,
        "context": str(context),
        "processes": {process.name: process.pid for process in platform.processes},
        "logs": {process.name: str(process.log_file) for process in platform.processes},
    }


def _program() -> str:
    """How this program is called here: by its path where no shell would find it by name."""
    return "tdp" if shutil.which("tdp") else shlex.quote(sys.argv[0])


def _explain(platform: Platform, connection: Connection, context: Path) -> None:
    url, key, target = connection.gateway_url, connection.gateway_key, connection.control_target
    out.print(f"\n[bold]TDP runs.[/] Press Ctrl-C to stop; the data stays in {context.parent}.\n")
    for name, value in (
        ("console", f"{url}/console/"),
        ("gateway", url),
        ("API description", url + API_DESCRIPTION_PATH),
        ("control plane", f"{target} (gRPC with reflection)"),
        ("API key", key),
        ("operator's key", connection.control_key),
        ("logs", str(platform.processes[0].log_file.parent)),
    ):
        out.print(f"  [bold]{name:<16}[/] {plain(value)}", soft_wrap=True)
    authorization = shlex.quote(f"authorization: Bearer {key}")
    operator = shlex.quote(f"authorization: Bearer {connection.control_key}")
    lines = (
        f"curl -s -H {authorization} {url}/api/v1/orders",
        f"grpcurl -plaintext -H {operator} -d '{{}}' {target} {_SERVER_INFO}",
        f"{_program()} order create photos.zip --text 'my watermark' --wait",
    )
    out.print("\nTry, in another terminal of this folder:\n")
    for line in lines:
        out.print(f"  {plain(line)}", soft_wrap=True)
    if context != (DATA_FOLDER / CONTEXT_NAME).resolve():
        out.print(
            f"\n`tdp` commands need: export TDP_CLI_CONTEXT={plain(str(context))}", soft_wrap=True
        )
    out.print("")
