"""`tdp node`: see the node agents, say what they may do, and install one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from google.protobuf.duration_pb2 import Duration
from rich.console import Console

from foundation.errors import InvalidArgumentError, NotFoundError
from foundation.ids import is_id
from foundation.secrets import TokenKind, hash_token, new_token
from tdp.control.v1 import mutation_pb2, node_admin_service_pb2_grpc
from tdp.control.v1 import node_admin_service_pb2 as nodes
from tools.cli import journey
from tools.cli.commands.node_install import install
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import PAGE_SIZE_MAX, Json, Limit, group, rows_of, run
from tools.cli.output import as_document, enum_name, moment, plain, show, status_style, table

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

app = group("See the node agents, say what they may do, and install one on this machine.")
app.command("install")(install)
Stub = node_admin_service_pb2_grpc.NodeAdminServiceStub
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="The node's name or id.")]
Reason = Annotated[str, typer.Option(help="Why; kept with who asked.")]
Key = Annotated[
    str, typer.Option("--idempotency-key", help="Repeating with the same key does nothing twice.")
]
_HOUR_S: Final = 3600


@app.command("list")
def list_nodes(*, limit: Limit = 50, as_json: Json = False) -> None:
    """List the nodes, by name: state, capacity, capabilities and when each was last heard of.

    Example:
      tdp node list --json
    """
    run(_list(limit, as_json=as_json))


@app.command()
def cordon(node: NodeName, *, reason: Reason = "", key: Key = "", as_json: Json = False) -> None:
    """Give a node no new work; what runs goes on, also where it was draining.

    Example:
      tdp node cordon worker-3 --reason "noisy disk"
    """
    run(_change(node, "CordonNode", nodes.CordonNodeRequest, key, as_json=as_json, reason=reason))


@app.command()
def uncordon(node: NodeName, *, reason: Reason = "", key: Key = "", as_json: Json = False) -> None:
    """Give a node work again, after a cordon or a drain.

    Example:
      tdp node uncordon worker-3
    """
    request = nodes.UncordonNodeRequest
    run(_change(node, "UncordonNode", request, key, as_json=as_json, reason=reason))


@app.command()
def drain(
    node: NodeName,
    *,
    grace_s: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds; 0 waits until all has ended.")
    ] = 0.0,
    reason: Reason = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Give a node no new work; after the grace, what still runs there is run elsewhere.

    Example:
      tdp node drain worker-3 --grace 600 --reason "new kernel"
    """
    grace = Duration()
    grace.FromNanoseconds(int(grace_s * 1e9))
    request = nodes.DrainNodeRequest
    run(
        _change(node, "DrainNode", request, key, as_json=as_json, reason=reason, grace_period=grace)
    )


@app.command()
def place(
    node: NodeName,
    *,
    label: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE; NAME= takes the label away. Repeatable.")
    ] = None,
    weight: Annotated[int | None, typer.Option(help="0 means 100; more is preferred.")] = None,
    group_name: Annotated[
        str | None, typer.Option("--group", help="The group; '' for none.")
    ] = None,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Change a node's trusted labels, weight or group; what is not named stays as it is.

    Example:
      tdp node place worker-3 --label gpu=a100 --label spot= --weight 200
    """
    run(_place(node, label or [], weight, group_name, key, as_json=as_json))


@app.command()
def remove(
    node: NodeName,
    *,
    lose_attempts: Annotated[
        bool,
        typer.Option("--lose-attempts", help="Also while it holds work, which is tried elsewhere."),
    ] = False,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Forget a node for good: its credential no longer works.

    Example:
      tdp node remove worker-3
    """
    run(_remove(node, key, lose_attempts=lose_attempts, as_json=as_json))


@app.command("join-token")
def join_token(
    *,
    ttl_h: Annotated[
        float, typer.Option("--ttl", min=0, max=8760, help="Hours; 0 means 24.")
    ] = 24.0,
    uses: Annotated[int, typer.Option(min=0, help="How many nodes; 0 means any number.")] = 1,
    group_name: Annotated[str, typer.Option("--group", help="The group of such nodes.")] = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a token with which new nodes enrol. It is shown now and never again.

    Example:
      tdp node join-token --uses 10 --group gpu --ttl 2
    """
    run(_join_token(ttl_h, uses, group_name, key, as_json=as_json))


async def _list(limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:
        found, token = await rows_of(_pages(control), limit)
    document = {"nodes": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: _render(console, found))


async def _change(
    node: str,
    method: str,
    request: Callable[..., Any],
    key: str,
    *,
    as_json: bool,
    **fields: object,
) -> None:
    async with Connection.find().control() as control:
        found = await _find(control, node)
        answer: Any = await control.ask(
            getattr(Stub(control.channel), method),
            request(node_id=found.node_id, idempotency_key=_key(key), **fields),
        )
    _show_node(answer, as_json=as_json)


async def _place(
    node: str,
    changes: Sequence[str],
    weight: int | None,
    group_name: str | None,
    key: str,
    *,
    as_json: bool,
) -> None:
    async with Connection.find().control() as control:
        found = await _find(control, node)
        request = nodes.SetNodePlacementRequest(
            node_id=found.node_id,
            idempotency_key=_key(key),
            labels=_changed(dict(found.labels), changes),
            weight=found.weight if weight is None else weight,
            group=found.group if group_name is None else group_name,
        )
        answer = await control.ask(Stub(control.channel).SetNodePlacement, request)
    _show_node(answer, as_json=as_json)


async def _remove(node: str, key: str, *, lose_attempts: bool, as_json: bool) -> None:
    async with Connection.find().control() as control:
        # Of a removed node only the id is left to repeat the request with.
        node_id = node if is_id(node) else (await _find(control, node)).node_id
        request = nodes.RemoveNodeRequest(
            node_id=node_id, idempotency_key=_key(key), loses_attempts=lose_attempts
        )
        answer = await control.ask(Stub(control.channel).RemoveNode, request)
    document = {"node_id": node_id, **as_document(answer)}
    show(document, as_json=as_json, render=lambda console: console.print(f"removed {plain(node)}"))


async def _join_token(ttl_h: float, uses: int, group_name: str, key: str, *, as_json: bool) -> None:
    token = new_token(TokenKind.JOIN)
    async with Connection.find().control() as control:
        request = nodes.CreateJoinTokenRequest(
            idempotency_key=_key(key),
            token_sha256=hash_token(token),
            ttl=Duration(seconds=int(ttl_h * _HOUR_S)),
            use_count_max=uses,
            group=group_name,
        )
        answer = await control.ask(Stub(control.channel).CreateJoinToken, request)
    document = {"token": token, **as_document(answer)}
    show(
        document, as_json=as_json, render=lambda console: _token(console, token, answer.expire_time)
    )


def _token(console: Console, token: str, until: "Timestamp") -> None:
    console.print(token, soft_wrap=True)
    console.print(f"[dim]good until {moment(until)} UTC; it is not stored, only its hash is[/]")


def _key(given: str) -> str:
    return given or journey.new_idempotency_key()


def _pages(
    control: ControlPlane,
) -> Callable[[int, str], Awaitable[tuple[Sequence[nodes.Node], str]]]:
    async def page(size: int, token: str) -> tuple[Sequence[nodes.Node], str]:
        request = nodes.ListNodesRequest(page_size=size, page_token=token)
        answer = await control.ask(Stub(control.channel).ListNodes, request)
        return answer.nodes, answer.next_page_token

    return page


async def _find(control: ControlPlane, node: str) -> nodes.Node:
    """Return the node of this id or name; NotFoundError."""
    if is_id(node):
        request = nodes.GetNodeRequest(node_id=node)
        return (await control.ask(Stub(control.channel).GetNode, request)).node
    page, token = _pages(control), ""
    while True:
        found, token = await page(PAGE_SIZE_MAX, token)
        for one in found:
            if one.name == node:
                return one
        if not token:
            raise NotFoundError(
                f"no node is named {node!r}: `tdp node list` shows them", reason="NODE_UNKNOWN"
            )


def _changed(labels: dict[str, str], changes: Sequence[str]) -> dict[str, str]:
    for change in changes:
        name, equals, value = change.partition("=")
        if not name or not equals:
            raise InvalidArgumentError.of_field("label", f"is {change!r}: write NAME=VALUE")
        if value:
            labels[name] = value
        else:
            labels.pop(name, None)
    return labels


def _show_node(answer: Any, *, as_json: bool) -> None:  # noqa: ANN401 - any answer with a node
    def render(console: Console) -> None:
        _render(console, [answer.node])
        if answer.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED:
            console.print("[dim]this had been done before[/]")

    show(as_document(answer), as_json=as_json, render=render)


def _render(console: Console, found: Sequence[nodes.Node]) -> None:
    rows = table(
        "Nodes", "name", "group", "runtime", "management", "slots", "capabilities", "last seen"
    )
    for one in found:
        rows.add_row(
            one.name,
            one.group or "–",
            status_style(enum_name(nodes.NodeRuntime.Name(one.runtime), "NODE_RUNTIME_")),
            _management(one),
            f"{one.running_count}/{one.slot_count}",
            "\n".join(_capability(each) for each in one.capabilities),
            moment(one.last_seen_time),
        )
    console.print(rows)


def _management(node: nodes.Node) -> str:
    said = enum_name(nodes.NodeManagement.Name(node.management), "NODE_MANAGEMENT_")
    if node.management == nodes.NODE_MANAGEMENT_ACTIVE or not node.managed_by:
        return said
    why = f": {node.management_reason}" if node.management_reason else ""
    return plain(f"{said} by {node.managed_by}{why}")


def _capability(capability: nodes.NodeCapability) -> str:
    refused = f" [red]refused[/]: {plain(capability.refusal)}" if capability.refusal else ""
    return f"{capability.name} {capability.version}{refused}"
