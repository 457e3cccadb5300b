"""What the command outbox carries: the payloads of SUBMIT, CANCEL and RERUN.

SUBMIT  {"order_id", "name", "workflow_name", "workflow_version", "input": {…}}
CANCEL  {"order_id", "run", "reason"}           run 0: the current one
RERUN   {"order_id", "run", "mode", "reason"}   mode: FROM_SCRATCH

The platform's idempotency key of SUBMIT is `submit:<order id>`; of the others `<kind in lower
case>:<command id>`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from business_gateway.core.orders.domain import (
    CommandId,
    CommandKind,
    NewCommand,
    NewOrder,
    OrderId,
    OrderRequest,
    ProcessingMode,
    RerunMode,
)


@dataclass(frozen=True, slots=True)
class WorkflowChoice:
    """A published workflow: its name and exact version."""

    name: str
    version: str


Workflows = Mapping[ProcessingMode, WorkflowChoice]

SHIPPED_WORKFLOWS: Final[Workflows] = {
    ProcessingMode.ARCHIVE_CLEAN_ONLY: WorkflowChoice("archive-clean", "1"),
    ProcessingMode.ARCHIVE_CLEAN_THEN_WATERMARK: WorkflowChoice(
        "archive-clean-then-watermark", "1"
    ),
}


def platform_key(kind: CommandKind, order_id: str, command_id: str) -> str:
    """Return the idempotency key under which the platform gets a command."""
    if kind is CommandKind.SUBMIT:
        return f"submit:{order_id}"
    return f"{kind.lower()}:{command_id}"


def submit_command(
    command_id: CommandId, order: NewOrder, workflows: Workflows = SHIPPED_WORKFLOWS
) -> NewCommand:
    """Make the command that hands a new order over."""
    workflow = workflows[order.request.processing_mode]
    return _command(
        command_id,
        CommandKind.SUBMIT,
        order.order_id,
        name=order.request.name,
        workflow_name=workflow.name,
        workflow_version=workflow.version,
        input=task_input(order.order_id, order.request),
    )


def cancel_command(command_id: CommandId, order_id: OrderId, run: int, reason: str) -> NewCommand:
    """Make the command that cancels a run."""
    return _command(command_id, CommandKind.CANCEL, order_id, run=run, reason=reason)


def rerun_command(
    command_id: CommandId, order_id: OrderId, run: int, mode: RerunMode, reason: str
) -> NewCommand:
    """Make the command that runs the order again after its run `run`."""
    return _command(
        command_id, CommandKind.RERUN, order_id, run=run, mode=mode.value, reason=reason
    )


def task_input(order_id: OrderId, request: OrderRequest) -> dict[str, str]:
    """Return the input document of the order's workflow."""
    document = {
        "archive_ref": f"asset:{request.source_asset_id}",
        "collection_ref": f"collection:{order_id}",
    }
    if request.processing_mode is ProcessingMode.ARCHIVE_CLEAN_THEN_WATERMARK:
        document["watermark_text"] = request.watermark_text
    return document


def _command(
    command_id: CommandId, kind: CommandKind, order_id: OrderId, **fields: object
) -> NewCommand:
    payload = json.dumps(
        {"order_id": order_id, **fields}, ensure_ascii=False, separators=(",", ":")
    )
    return NewCommand(command_id, kind, order_id, payload)
