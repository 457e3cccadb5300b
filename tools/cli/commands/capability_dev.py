"""`tdp capability dev`: the project's capabilities on a running stack, started anew on change."""

import asyncio
import hashlib
import socket
import uuid
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf.duration_pb2 import Duration

from foundation.errors import NotFoundError
from foundation.logging import LogConfig, configure_logging
from foundation.secrets import TokenKind, hash_token, new_token
from tdp.control.v1 import node_admin_service_pb2 as nodes
from tdp.control.v1 import node_admin_service_pb2_grpc
from tools.cli.capability.dev_agent import AgentSetup, Document
from tools.cli.capability.dev_loop import DevLoop
from tools.cli.capability.dev_view import DevView
from tools.cli.capability.project import Project
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import Json, rows_of, run
from tools.cli.output import out, write_json
from tools.cli.stack_runner import stop_signals

Stub = node_admin_service_pb2_grpc.NodeAdminServiceStub
_TOKEN_TTL_S: Final = 24 * 3600
_NODES_MAX: Final = 10_000
_NAME_CHARACTERS_MAX: Final = 100


def dev(
    *,
    project: Annotated[
        Path, typer.Option("--project", file_okay=False, help="The project's folder.")
    ] = Path(),
    slots: Annotated[int, typer.Option(min=1, max=64, help="Attempts at once.")] = 1,
    name: Annotated[
        str, typer.Option("--name", help="The node's name; by default of project and machine.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Run an agent with this project's capabilities, anew whenever a file of it changes.

    Needs a running stack (`tdp dev`). Shows what is declared, every attempt with its log, and
    mistakes in the code with file and line. Ctrl-C ends it.

    Example:
      tdp capability dev --project archive-statistics
    """
    configure_logging(LogConfig(process="tdp", format="console", level="warning"))
    found = Project.find(project)
    if found is None:
        raise NotFoundError(
            f"{project.resolve()} has no pyproject.toml that names a capability; `tdp capability"
            " new` writes one, --project names another folder",
            reason="PROJECT_MISSING",
        )
    run(_dev(found, name, slots, as_json=as_json))


async def _dev(project: Project, name: str, slots: int, *, as_json: bool) -> None:
    connection = Connection.find()
    async with connection.control() as control:
        node_name = name or f"dev-{project.name}-{socket.gethostname()}"[:_NAME_CHARACTERS_MAX]
        setup = AgentSetup(
            project,
            connection,
            node_name,
            await _join_token(control),
            _state_folder(project, connection, node_name),
            slots,
        )

        async def refusals() -> list[Document]:
            return await _refusals(control, node_name)

        tell = write_json if as_json else DevView(out).tell
        loop = DevLoop(setup, tell, refusals)
        with stop_signals() as stop:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(loop.run(), name="dev loop")
                await stop.wait()
                running.cancel()


async def _join_token(control: ControlPlane) -> str:
    token = new_token(TokenKind.JOIN)
    request = nodes.CreateJoinTokenRequest(
        idempotency_key=f"capability-dev:{uuid.uuid4()}",
        token_sha256=hash_token(token),
        ttl=Duration(seconds=_TOKEN_TTL_S),
        use_count_max=1,
    )
    await control.ask(Stub(control.channel).CreateJoinToken, request)
    return token


def _state_folder(project: Project, connection: Connection, node_name: str) -> Path:
    """Where the agent keeps its identity: one folder for each stack, whose keys tell it."""
    told = f"{connection.control_target} {connection.control_key} {node_name}"
    hidden = project.folder / ".tdp"
    hidden.mkdir(exist_ok=True)
    # It holds a credential, which no commit of the project shall take along.
    (hidden / ".gitignore").write_text("*\n", encoding="ascii")
    return hidden / hashlib.sha256(told.encode()).hexdigest()[:16]


async def _refusals(control: ControlPlane, node_name: str) -> list[Document]:
    async def page(size: int, token: str) -> tuple[list[nodes.Node], str]:
        request = nodes.ListNodesRequest(page_size=size, page_token=token)
        answer = await control.ask(Stub(control.channel).ListNodes, request)
        return list(answer.nodes), answer.next_page_token

    known, _ = await rows_of(page, _NODES_MAX)
    return [
        {"name": one.name, "version": one.version, "refusal": one.refusal}
        for node in known
        if node.name == node_name
        for one in node.capabilities
        if one.refusal
    ]
