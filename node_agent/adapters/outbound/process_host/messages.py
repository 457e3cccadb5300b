"""The agent's records as JSON for a child, and back; every field by name, nothing pickled."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from foundation.errors import TdpError
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    Failed,
    Grant,
    Outcome,
    RunOrder,
    Stopped,
    Succeeded,
    UploadedArtifact,
    Usage,
    WorkFailure,
)
from node_agent.core.session.lease_clock import AttemptId
from node_agent.sdk.errors import ServiceRefusedError

Document = dict[str, Any]


def order_document(order: RunOrder) -> Document:
    """An order for the child."""
    return {**dataclasses.asdict(order), "work_folder": str(order.work_folder)}


def order_from(document: Mapping[str, Any]) -> RunOrder:
    """The order, in the child."""
    changes = {
        "attempt_id": AttemptId(document["attempt_id"]),
        "work_folder": Path(document["work_folder"]),
    }
    return RunOrder(**{**document, **changes})


def grant_document(grant: Grant) -> Document:
    """A grant for the child."""
    return {
        "grant_id": grant.grant_id,
        "resource_ref": grant.resource_ref,
        "method": grant.method,
        "url": grant.url,
        "headers": dict(grant.headers),
        "expires_at": grant.expires_at.isoformat(),
        "size_bytes": grant.size_bytes,
        "sha256": grant.sha256.hex(),
    }


def grant_from(document: Mapping[str, Any]) -> Grant:
    """The grant, in the child."""
    changes = {
        "expires_at": datetime.fromisoformat(document["expires_at"]),
        "sha256": bytes.fromhex(document["sha256"]),
    }
    return Grant(**{**document, **changes})


def allocated_document(place: AllocatedArtifact) -> Document:
    """An allocated place for the child."""
    return {
        "relative_path": place.relative_path,
        "resource_ref": place.resource_ref,
        "grant": grant_document(place.grant),
    }


def allocated_from(document: Mapping[str, Any]) -> AllocatedArtifact:
    """The allocated place, in the child."""
    return AllocatedArtifact(**{**document, "grant": grant_from(document["grant"])})


def request_document(request: ArtifactRequest) -> Document:
    """A wish for a place, for the agent."""
    return dataclasses.asdict(request)


def request_from(document: Mapping[str, Any]) -> ArtifactRequest:
    """The wish, in the agent."""
    return ArtifactRequest(**document)


def uploaded_document(artifact: UploadedArtifact) -> Document:
    """An uploaded file, for the agent."""
    return {**dataclasses.asdict(artifact), "sha256": artifact.sha256.hex()}


def uploaded_from(document: Mapping[str, Any]) -> UploadedArtifact:
    """The uploaded file, in the agent."""
    return UploadedArtifact(**{**document, "sha256": bytes.fromhex(document["sha256"])})


def outcome_document(outcome: Outcome) -> Document:
    """How the work ended, for the agent."""
    return {"type": type(outcome).__name__, **dataclasses.asdict(outcome)}


def outcome_from(document: Mapping[str, Any]) -> Outcome:
    """How the work ended, in the agent; raises KeyError or TypeError for what is none."""
    usage = Usage(**document["usage"])
    match document["type"]:
        case "Succeeded":
            return Succeeded(
                document["output_json"],
                document["collection_ref"],
                document["artifact_count"],
                usage,
            )
        case "Failed":
            return Failed(WorkFailure(**document["failure"]), usage)
        case "Stopped":
            return Stopped(usage)
        case other:
            raise KeyError(f"outcome {other!r}")


def error_document(error: TdpError) -> Document:
    """Why a service was refused, for the child."""
    return {
        "reason": error.reason,
        "message": error.message,
        "retryable": error.retryable,
        "retry_delay_s": error.retry_delay_s,
    }


def error_from(document: Mapping[str, Any]) -> ServiceRefusedError:
    """The refusal, to be raised in the child."""
    return ServiceRefusedError(
        document["reason"],
        document["message"],
        retryable=document["retryable"],
        retry_delay_s=document["retry_delay_s"],
    )
