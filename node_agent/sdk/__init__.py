"""Authoring of capabilities: a decorated function, its models, and what its context offers."""

from node_agent.core.execution.ports import ArtifactRequest, UploadedArtifact
from node_agent.sdk.artifacts import Artifacts
from node_agent.sdk.context import BlockingContext, Context, WorkCancelledError
from node_agent.sdk.definition import Capability, capability
from node_agent.sdk.discovery import installed_references, load_capabilities
from node_agent.sdk.errors import CapabilityDefinitionError, Fatal, Retryable, ServiceRefusedError

__all__ = [
    "ArtifactRequest",
    "Artifacts",
    "BlockingContext",
    "Capability",
    "CapabilityDefinitionError",
    "Context",
    "Fatal",
    "Retryable",
    "ServiceRefusedError",
    "UploadedArtifact",
    "WorkCancelledError",
    "capability",
    "installed_references",
    "load_capabilities",
]
