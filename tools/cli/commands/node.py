"""`tdp node`: see the node agents."""

from collections.abc import Sequence

from rich.console import Console

from tdp.control.v1 import node_admin_service_pb2 as nodes
from tdp.control.v1 import node_admin_service_pb2_grpc
from tools.cli.connection import Connection
from tools.cli.options import Json, Limit, group, rows_of, run
from tools.cli.output import as_document, enum_name, moment, show, status_style, table

app = group("See the node agents.")
Stub = node_admin_service_pb2_grpc.NodeAdminServiceStub


@app.command("list")
def list_nodes(*, limit: Limit = 50, as_json: Json = False) -> None:
    """List the nodes, by name: state, capacity, capabilities and when each was last heard of.

    Example:
      tdp node list --json
    """
    run(_list(limit, as_json=as_json))


async def _list(limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:

        async def page(size: int, token: str) -> tuple[Sequence[nodes.Node], str]:
            request = nodes.ListNodesRequest(page_size=size, page_token=token)
            answer = await control.ask(Stub(control.channel).ListNodes, request)
            return answer.nodes, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"nodes": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: _render(console, found))


def _render(console: Console, found: list[nodes.Node]) -> None:
    rows = table("Nodes", "name", "runtime", "management", "slots", "capabilities", "last seen")
    for one in found:
        rows.add_row(
            one.name,
            status_style(enum_name(nodes.NodeRuntime.Name(one.runtime), "NODE_RUNTIME_")),
            enum_name(nodes.NodeManagement.Name(one.management), "NODE_MANAGEMENT_"),
            f"{one.running_count}/{one.slot_count}",
            "\n".join(_capability(each) for each in one.capabilities),
            moment(one.last_seen_time),
        )
    console.print(rows)


def _capability(capability: nodes.NodeCapability) -> str:
    refused = " [red]refused[/]" if capability.refusal else ""
    return f"{capability.name} {capability.version}{refused}"
