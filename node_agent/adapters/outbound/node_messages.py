"""Translates what agent and control plane say between the contract and the core."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, assert_never

from foundation.grpc.times import duration, seconds_of, timestamp
from foundation.ids import is_id
from node_agent.core.execution.ports import UploadedArtifact, Usage
from node_agent.core.journal.domain import RunSpec
from node_agent.core.journal.events import (
    ArtifactsReported,
    NodeEvent,
    WorkFailed,
    WorkStopped,
    WorkSucceeded,
)
from node_agent.core.session.lease_clock import HeldLease
from node_agent.core.session.messages import (
    PROTOCOL_VERSION,
    AttemptProgress,
    CancelCommand,
    Command,
    CommandAck,
    Commands,
    Down,
    DrainCommand,
    EventAck,
    EventBatch,
    EventResult,
    ExtendCommand,
    GoAway,
    Heartbeat,
    HeartbeatReply,
    Hello,
    JobCredit,
    ProgressReport,
    RunCommand,
    UndrainCommand,
    UnknownCommand,
    Up,
    Verdict,
    Welcome,
    attempt_lease,
)
from node_agent.errors import SessionLostError
from node_agent.limits import EVENT_BATCH_BYTES
from tdp.node.v1 import node_service_pb2 as pb

_VERDICTS: Final = {
    pb.VERDICT_KEEP: Verdict.KEEP,
    pb.VERDICT_CANCEL: Verdict.CANCEL,
    pb.VERDICT_FORGET: Verdict.FORGET,
}


# --- To the control plane. ---


def requests_to(generation: int, message: Up, size_bytes_max: int) -> Iterator[pb.SessionRequest]:
    """Yield what to write for a message: a long run of events is cut into several."""
    match message:
        case Hello():
            yield pb.SessionRequest(generation=generation, hello=_hello(message))
        case Heartbeat():
            yield pb.SessionRequest(generation=generation, heartbeat=_heartbeat(message))
        case CommandAck(sequence, refused):
            ack = pb.CommandAck(sequence=sequence, refused_command_ids=refused)
            yield pb.SessionRequest(generation=generation, command_ack=ack)
        case JobCredit(credit_count):
            credit = pb.JobCredit(credit_count=credit_count)
            yield pb.SessionRequest(generation=generation, job_credit=credit)
        case ProgressReport(attempts):
            report = pb.ProgressReport(attempts=[_progress(one) for one in attempts])
            yield pb.SessionRequest(generation=generation, progress=report)
        case EventBatch(events):
            for batch in _event_batches(events, min(EVENT_BATCH_BYTES, size_bytes_max)):
                yield pb.SessionRequest(generation=generation, events=batch)
        case _ as unreachable:
            assert_never(unreachable)


def _event_batches(events: Iterable[NodeEvent], size_bytes_max: int) -> Iterator[pb.EventBatch]:
    batch, size_bytes = pb.EventBatch(), 0
    for event in events:
        translated = event_to(event)
        added_bytes = translated.ByteSize() + 8
        if batch.events and size_bytes + added_bytes > size_bytes_max:
            yield batch
            batch, size_bytes = pb.EventBatch(), 0
        batch.events.append(translated)
        size_bytes += added_bytes
    if batch.events:
        yield batch


def _hello(hello: Hello) -> pb.Hello:
    who, has = hello.introduction, hello.inventory
    return pb.Hello(
        protocol_version=PROTOCOL_VERSION,
        node_id=who.node_id,
        boot_id=who.boot_id,
        incarnation_id=who.incarnation_id,
        agent_version=who.agent_version,
        capabilities=[
            pb.CapabilityDeclaration(
                name=one.name,
                version=one.version,
                input_schema_json=one.input_schema_json,
                output_schema_json=one.output_schema_json,
                inline=one.inline,
            )
            for one in who.capabilities
        ],
        inventory=pb.NodeInventory(
            cpu_millis=has.cpu_millis,
            memory_bytes=has.memory_bytes,
            disk_bytes=has.disk_bytes,
            gpu_count=has.gpu_count,
        ),
        slot_count=who.slot_count,
        process_slot_count=who.process_slot_count,
        last_command_sequence=hello.last_command_sequence,
        held_attempts=[
            pb.HeldAttempt(
                attempt_id=one.lease.attempt_id,
                lease_version=one.lease.lease_version,
                finished=one.is_finished,
            )
            for one in hello.held
        ],
        job_credits=hello.job_credits,
        ready=hello.readiness.is_ready,
        not_ready_reason=hello.readiness.reason,
    )


def _heartbeat(beat: Heartbeat) -> pb.Heartbeat:
    return pb.Heartbeat(
        number=beat.number,
        leases=[
            pb.LeaseReference(attempt_id=one.attempt_id, lease_version=one.lease_version)
            for one in beat.leases
        ],
        ready=beat.readiness.is_ready,
        not_ready_reason=beat.readiness.reason,
        outbox_depth=beat.outbox_depth,
        disk_bytes=beat.usage.disk_bytes,
        cpu_used_millis=beat.usage.cpu_used_millis,
        memory_available_bytes=beat.usage.memory_available_bytes,
    )


def _progress(one: AttemptProgress) -> pb.AttemptProgress:
    return pb.AttemptProgress(
        attempt_id=one.lease.attempt_id,
        lease_version=one.lease.lease_version,
        progress_percent=one.percent,
        message=one.message,
    )


def event_to(event: NodeEvent) -> pb.NodeEvent:
    """Return an event as the contract has it."""
    message = pb.NodeEvent(
        event_id=event.event_id,
        attempt_id=event.attempt_id,
        lease_version=event.lease_version,
        incarnation_id=event.incarnation_id,
        boot_id=event.boot_id,
        occur_time=timestamp(datetime.fromisoformat(event.occurred_at)),
    )
    match event.fact:
        case ArtifactsReported(artifacts):
            message.artifacts_reported.artifacts.extend(_artifact(one) for one in artifacts)
        case WorkSucceeded(output_json, artifact_count, collection_ref, usage):
            message.succeeded.CopyFrom(
                pb.AttemptSucceeded(
                    output_json=output_json,
                    artifact_count=artifact_count,
                    collection_ref=collection_ref,
                    usage=_usage(usage),
                )
            )
        case WorkFailed() as failed:
            message.failed.CopyFrom(_failed(failed))
        case WorkStopped(stop_reason, usage):
            message.stopped.CopyFrom(
                pb.AttemptStopped(stop_reason=stop_reason, usage=_usage(usage))
            )
        case _ as unreachable:
            assert_never(unreachable)
    return message


def _artifact(one: UploadedArtifact) -> pb.UploadedArtifact:
    return pb.UploadedArtifact(
        relative_path=one.relative_path,
        resource_ref=one.resource_ref,
        size_bytes=one.size_bytes,
        sha256=one.sha256,
        media_type=one.media_type,
    )


def _failed(failed: WorkFailed) -> pb.AttemptFailed:
    told = failed.failure
    failure = pb.NodeFailure(
        reason=told.reason,
        message=told.message,
        retryable=told.retryable,
        infrastructure=told.infrastructure,
        log_tail=told.log_tail,
    )
    if told.next_retry_delay_s is not None:
        failure.next_retry_delay.CopyFrom(duration(told.next_retry_delay_s))
    return pb.AttemptFailed(failure=failure, usage=_usage(failed.usage))


def _usage(usage: Usage) -> pb.NodeUsage:
    return pb.NodeUsage(
        cpu_time_ms=usage.cpu_time_ms,
        memory_bytes_max=usage.memory_bytes_max,
        duration_ms=usage.duration_ms,
    )


# --- From the control plane. ---


def response_from(response: pb.SessionResponse) -> Down | None:
    """Return what the server said; None for what only a newer version understands.

    Raises SessionLostError for a message that breaks the contract.
    """
    match response.WhichOneof("message"):
        case "welcome":
            return _welcome(response.welcome)
        case "commands":
            return Commands(tuple(_command(one) for one in response.commands.commands))
        case "heartbeat_reply":
            reply = response.heartbeat_reply
            return HeartbeatReply(
                reply.number,
                tuple(_lease(one.attempt_id, one.lease_version) for one in reply.renewed),
                tuple(_lease(one.attempt_id, one.lease_version) for one in reply.lost),
            )
        case "event_ack":
            return EventAck(
                tuple(
                    EventResult(one.event_id, one.accepted, one.reason)
                    for one in response.event_ack.results
                )
            )
        case "go_away":
            away = response.go_away
            return GoAway(seconds_of(away.reconnect_within), away.reason)
    return None


def _welcome(message: pb.Welcome) -> Welcome:
    interval_s, ttl_s = seconds_of(message.heartbeat_interval), seconds_of(message.lease_ttl)
    if message.generation < 1 or interval_s <= 0 or ttl_s <= 0:
        raise SessionLostError(
            f"Welcome names generation {message.generation}, heartbeat interval {interval_s} s and "
            f"lease TTL {ttl_s} s: each must be above 0"
        )
    verdicts = tuple(
        (_lease(one.attempt_id, one.lease_version), _VERDICTS[one.verdict])
        for one in message.verdicts
        if one.verdict in _VERDICTS
    )
    return Welcome(
        message.generation,
        interval_s,
        ttl_s,
        verdicts,
        message.message_bytes_max,
        message.server_version,
    )


def _command(command: pb.Command) -> Command:
    sequence, command_id = command.sequence, command.command_id
    if sequence < 1 or not is_id(command_id):
        raise SessionLostError(f"command {command_id[:64]!r} has sequence {sequence} or no id")
    match command.WhichOneof("order"):
        case "run":
            return _run(command)
        case "cancel":
            cancel = command.cancel
            lease = _lease(cancel.attempt_id, cancel.lease_version)
            return CancelCommand(sequence, command_id, lease, cancel.stop_reason)
        case "extend":
            extend = command.extend
            lease = _lease(extend.attempt_id, extend.lease_version)
            return ExtendCommand(sequence, command_id, lease, seconds_of(extend.extension))
        case "drain":
            return DrainCommand(sequence, command_id, seconds_of(command.drain.grace_period))
        case "undrain":
            return UndrainCommand(sequence, command_id)
    return UnknownCommand(sequence, command_id)


def _run(command: pb.Command) -> RunCommand:
    run = command.run
    lease = _lease(run.attempt_id, run.lease_version)
    spec = RunSpec(
        attempt_id=lease.attempt_id,
        lease_version=lease.lease_version,
        task_id=run.task_id,
        execution_id=run.execution_id,
        step_key=run.step_key,
        item_index=run.item_index,
        attempt_number=run.attempt_number,
        capability=run.capability,
        capability_version=run.capability_version,
        input_json=run.input_json,
        run_timeout_s=seconds_of(run.run_timeout),
        heartbeat_timeout_s=seconds_of(run.heartbeat_timeout),
        memory_bytes_max=max(run.memory_bytes_max, 0),
        traceparent=run.traceparent,
    )
    return RunCommand(
        command.sequence,
        command.command_id,
        spec,
        seconds_of(run.lease_remaining),
        run.last_heartbeat_number,
    )


def _lease(attempt_id: str, lease_version: int) -> HeldLease:
    # The id becomes a folder's name: nothing but an id may pass.
    if not is_id(attempt_id) or lease_version < 1:
        raise SessionLostError(
            f"attempt {attempt_id[:64]!r} under lease version {lease_version} is no lease"
        )
    return attempt_lease(attempt_id, lease_version)
