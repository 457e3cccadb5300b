"""Translates the messages of a node's session between the contract and the domain."""

import json
from collections.abc import Iterator
from typing import Final

from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.failures import Failure
from control_plane.core.nodes.commands import (
    CancelPayload,
    CommandKind,
    DrainPayload,
    ExtendPayload,
    RunPayload,
)
from control_plane.core.nodes.domain import (
    PROTOCOL_VERSION,
    ArtifactsReported,
    CapabilityDeclaration,
    Fact,
    HeldAttempt,
    Hello,
    NodeEvent,
    OpenedSession,
    ProgressMark,
    ReportedArtifact,
    SentCommand,
    WorkFailed,
    WorkStopped,
    WorkSucceeded,
    lease,
)
from control_plane.core.nodes.errors import ProtocolBrokenError
from control_plane.core.nodes.leases import LeaseFigures, ListedLease, Verdict
from control_plane.core.nodes.session import (
    CommandsOut,
    EventsStored,
    GoAwayOut,
    Heartbeat,
    HeartbeatAnswer,
    Outgoing,
)
from control_plane.core.workflows.domain import Resources
from control_plane.limits import (
    ARTIFACTS_PER_EVENT_MAX,
    CAPABILITIES_MAX,
    COMMAND_BATCH_BYTES,
    DOCUMENT_BYTES_MAX,
    EVENTS_PER_BATCH_MAX,
    HELD_ATTEMPTS_MAX,
    LOG_TAIL_CHARS_MAX,
    SCHEMA_BYTES_MAX,
    SLOTS_MAX,
)
from foundation.errors import InvalidArgumentError, is_reason
from foundation.grpc.messages import MESSAGE_BYTES_MAX
from foundation.grpc.times import duration, seconds_of
from foundation.ids import is_id, parse_id
from tdp.node.v1 import node_service_pb2 as pb

NAME_CHARS_MAX: Final = 200

_VERDICTS: Final = {
    Verdict.KEEP: pb.VERDICT_KEEP,
    Verdict.CANCEL: pb.VERDICT_CANCEL,
    Verdict.FORGET: pb.VERDICT_FORGET,
}


# --- From nodes. ---


def hello_from(message: pb.Hello) -> Hello:
    """Return the Hello; InvalidArgumentError or ProtocolBrokenError for one that is not right."""
    if message.protocol_version != PROTOCOL_VERSION:
        raise ProtocolBrokenError(
            f"session protocol {message.protocol_version} is not spoken here: use "
            f"{PROTOCOL_VERSION}",
            reason="PROTOCOL_VERSION_UNSUPPORTED",
        )
    _bound("capabilities", len(message.capabilities), CAPABILITIES_MAX)
    _bound("held_attempts", len(message.held_attempts), HELD_ATTEMPTS_MAX)
    _bound("slot_count", message.slot_count, SLOTS_MAX)
    inventory = message.inventory
    return Hello(
        node_id=parse_id(message.node_id, "hello.node_id"),
        boot_id=parse_id(message.boot_id, "hello.boot_id"),
        incarnation_id=parse_id(message.incarnation_id, "hello.incarnation_id"),
        agent_version=message.agent_version[:100],
        capabilities=[_declaration(one) for one in message.capabilities],
        resources=Resources(
            max(inventory.cpu_millis, 0),
            max(inventory.memory_bytes, 0),
            max(inventory.disk_bytes, 0),
            max(inventory.gpu_count, 0),
        ),
        slot_count=message.slot_count,
        last_command_sequence=max(message.last_command_sequence, 0),
        held=[
            HeldAttempt(_lease(one.attempt_id, one.lease_version), one.finished)
            for one in message.held_attempts
        ],
        job_credits=max(message.job_credits, 0),
        ready=message.ready,
        not_ready_reason=message.not_ready_reason[:200],
        process_slot_count=min(max(message.process_slot_count, 0), message.slot_count),
    )


def heartbeat_from(message: pb.Heartbeat) -> Heartbeat:
    """Return the heartbeat; InvalidArgumentError for one that is not right."""
    _bound("leases", len(message.leases), HELD_ATTEMPTS_MAX)
    if message.number < 1:
        raise InvalidArgumentError.of_field("heartbeat.number", "is missing: count from 1")
    return Heartbeat(
        number=message.number,
        leases=[_lease(one.attempt_id, one.lease_version) for one in message.leases],
        ready=message.ready,
        not_ready_reason=message.not_ready_reason[:200],
        disk_bytes=max(message.disk_bytes, 0),
        cpu_used_millis=max(message.cpu_used_millis, 0),
        memory_available_bytes=max(message.memory_available_bytes, 0),
    )


def events_from(message: pb.EventBatch, node_id: str) -> list[NodeEvent]:
    """Return the events; InvalidArgumentError for a batch that is too long or lacks ids."""
    _bound("events", len(message.events), EVENTS_PER_BATCH_MAX)
    return [_event(one, node_id) for one in message.events]


def progress_from(message: pb.ProgressReport, node_id: str) -> Iterator[ProgressMark]:
    """Yield the well-formed entries; progress is worth no error."""
    for one in message.attempts[:HELD_ATTEMPTS_MAX]:
        if is_id(one.attempt_id) and one.lease_version >= 1:
            percent = min(max(one.progress_percent, 0), 100)
            yield ProgressMark(node_id, one.attempt_id, one.lease_version, percent)


def _declaration(one: pb.CapabilityDeclaration) -> CapabilityDeclaration:
    if not one.name or not one.version or max(len(one.name), len(one.version)) > NAME_CHARS_MAX:
        raise InvalidArgumentError.of_field(
            "hello.capabilities", "a declaration needs a name and a version of 1–200 characters"
        )
    for text in (one.input_schema_json, one.output_schema_json):
        _bound("schema bytes", len(text.encode()), SCHEMA_BYTES_MAX)
    return CapabilityDeclaration(
        one.name, one.version, one.input_schema_json, one.output_schema_json, one.inline
    )


def _event(one: pb.NodeEvent, node_id: str) -> NodeEvent:
    if one.lease_version < 1:
        raise InvalidArgumentError.of_field(
            "events.lease_version", "is missing: send that of the attempt, at least 1"
        )
    return NodeEvent(
        event_id=parse_id(one.event_id, "events.event_id"),
        node_id=node_id,
        attempt_id=parse_id(one.attempt_id, "events.attempt_id"),
        lease_version=one.lease_version,
        incarnation_id=parse_id(one.incarnation_id, "events.incarnation_id"),
        boot_id=parse_id(one.boot_id, "events.boot_id"),
        fact=_fact(one),
    )


def _fact(one: pb.NodeEvent) -> Fact:
    match one.WhichOneof("fact"):
        case "artifacts_reported":
            return _artifacts(one.artifacts_reported)
        case "succeeded":
            done = one.succeeded
            _bound("output_json bytes", len(done.output_json.encode()), DOCUMENT_BYTES_MAX)
            return WorkSucceeded(
                done.output_json, done.artifact_count, done.collection_ref, _usage(done.usage)
            )
        case "failed":
            return _failed(one.failed)
        case "stopped":
            reason = one.stopped.stop_reason
            known = StopReason(reason) if reason in StopReason.__members__ else None
            return WorkStopped(known, _usage(one.stopped.usage))
    raise ProtocolBrokenError(f"event {one.event_id} tells nothing that this version knows")


def _artifacts(message: pb.ArtifactsReported) -> ArtifactsReported:
    _bound("artifacts", len(message.artifacts), ARTIFACTS_PER_EVENT_MAX)
    return ArtifactsReported(
        [
            ReportedArtifact(
                one.relative_path, one.resource_ref, one.size_bytes, one.sha256, one.media_type
            )
            for one in message.artifacts
        ]
    )


def _failed(message: pb.AttemptFailed) -> WorkFailed:
    told = message.failure
    delay_s = None
    if told.HasField("next_retry_delay"):
        delay_s = seconds_of(told.next_retry_delay)
    reason = told.reason if is_reason(told.reason) else "WORK_FAILED"
    return WorkFailed(
        Failure(reason, told.message or "the capability gave no reason", retryable=told.retryable),
        infrastructure=told.infrastructure,
        next_delay_s=delay_s,
        usage_json=_usage(message.usage),
        # No text of PostgreSQL can hold a NUL.
        log_tail=told.log_tail[-LOG_TAIL_CHARS_MAX:].replace("\0", "\ufffd"),
    )


def _usage(message: pb.NodeUsage) -> str:
    document = {field.name: value for field, value in message.ListFields()}
    return json.dumps(document, separators=(",", ":")) if document else ""


def _lease(attempt_id: str, lease_version: int) -> ListedLease:
    if lease_version < 1:
        raise InvalidArgumentError.of_field("lease_version", "is missing: leases start at 1")
    return lease(parse_id(attempt_id, "attempt_id"), lease_version)


def _bound(what: str, count: int, count_max: int) -> None:
    if not 0 <= count <= count_max:
        raise InvalidArgumentError.of_field(what, f"is {count}: send 0 to {count_max}")


# --- To nodes. ---


def welcome_to(
    opened: OpenedSession, figures: LeaseFigures, *, window_size: int, server_version: str
) -> pb.SessionResponse:
    """Return the answer to a Hello."""
    return pb.SessionResponse(
        welcome=pb.Welcome(
            generation=opened.generation,
            heartbeat_interval=duration(figures.heartbeat_interval_s),
            lease_ttl=duration(figures.lease_ttl_s),
            verdicts=[
                pb.AttemptVerdict(
                    attempt_id=held.attempt_id,
                    lease_version=held.lease_version,
                    verdict=_VERDICTS[verdict],
                    lease_remaining=(
                        None if verdict is Verdict.FORGET else duration(figures.lease_ttl_s)
                    ),
                )
                for held, verdict in opened.verdicts.items()
            ],
            command_window=window_size,
            message_bytes_max=MESSAGE_BYTES_MAX,
            server_version=server_version,
        )
    )


def responses_to(message: Outgoing) -> Iterator[pb.SessionResponse]:
    """Yield what to write for a message: a long run of commands is cut into several."""
    match message:
        case CommandsOut():
            yield from _batches(message)
        case HeartbeatAnswer(number, renewed, lost):
            yield pb.SessionResponse(
                heartbeat_reply=pb.HeartbeatReply(
                    number=number,
                    renewed=[_reference(one) for one in renewed],
                    lost=[_reference(one) for one in lost],
                )
            )
        case EventsStored(fates):
            results = [
                pb.EventResult(event_id=one.event_id, accepted=one.accepted, reason=one.reason)
                for one in fates
            ]
            yield pb.SessionResponse(event_ack=pb.EventAck(results=results))
        case GoAwayOut(reconnect_within_s, reason):
            yield pb.SessionResponse(
                go_away=pb.GoAway(reconnect_within=duration(reconnect_within_s), reason=reason)
            )


def _batches(message: CommandsOut) -> Iterator[pb.SessionResponse]:
    batch = pb.CommandBatch()
    size_bytes = 0
    for sent in message.commands:
        command = _command(sent, message.last_heartbeat_number)
        if batch.commands and size_bytes + command.ByteSize() > COMMAND_BATCH_BYTES:
            yield pb.SessionResponse(commands=batch)
            batch, size_bytes = pb.CommandBatch(), 0
        batch.commands.append(command)
        size_bytes += command.ByteSize()
    if batch.commands:
        yield pb.SessionResponse(commands=batch)


def _command(sent: SentCommand, heartbeat_number: int) -> pb.Command:
    command = pb.Command(sequence=sent.sequence, command_id=sent.command_id)
    match sent.kind:
        case CommandKind.RUN:
            command.run.CopyFrom(_run(sent, heartbeat_number))
        case CommandKind.CANCEL:
            cancel = CancelPayload.from_json(sent.payload)
            command.cancel.attempt_id = cancel.attempt_id
            command.cancel.lease_version = cancel.lease_version
            command.cancel.stop_reason = cancel.stop_reason
        case CommandKind.EXTEND:
            extend = ExtendPayload.from_json(sent.payload)
            command.extend.attempt_id = extend.attempt_id
            command.extend.lease_version = extend.lease_version
            command.extend.extension.CopyFrom(duration(extend.extension_s))
        case CommandKind.DRAIN:
            grace = DrainPayload.from_json(sent.payload)
            command.drain.grace_period.CopyFrom(duration(grace.grace_period_s))
        case CommandKind.UNDRAIN:
            command.undrain.SetInParent()
    return command


def _run(sent: SentCommand, heartbeat_number: int) -> pb.RunCommand:
    run = RunPayload.from_json(sent.payload)
    return pb.RunCommand(
        attempt_id=run.attempt_id,
        lease_version=run.lease_version,
        lease_remaining=duration(sent.lease_remaining_s),
        last_heartbeat_number=heartbeat_number,
        task_id=run.task_id,
        execution_id=run.execution_id,
        step_key=run.step_key,
        item_index=run.item_index,
        attempt_number=run.attempt_number,
        capability=run.capability,
        capability_version=run.capability_version,
        input_json=run.input_json,
        run_timeout=duration(run.run_timeout_s),
        heartbeat_timeout=duration(run.heartbeat_timeout_s),
        memory_bytes_max=run.memory_bytes_max,
        traceparent=run.traceparent,
    )


def _reference(one: ListedLease) -> pb.LeaseReference:
    return pb.LeaseReference(attempt_id=one.attempt_id, lease_version=one.lease_version)
