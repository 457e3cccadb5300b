"""Who may have a grant, and what a grant is; pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from control_plane.core.errors import ControlPlaneError
from control_plane.core.workflows.domain import WorkflowDefinition
from control_plane.limits import (
    ARTIFACT_PATH_BYTES_MAX,
    ARTIFACT_TYPE_CHARS_MAX,
    ARTIFACTS_PER_CALL_MAX,
    GRANT_TTL_MAX,
)
from foundation.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from foundation.secrets import SecretPlace


class LeaseLostError(ControlPlaneError, FailedPreconditionError):
    """The attempt is not live on this node under this lease: stop it."""

    reason = "LEASE_LOST"


class NotReferencedError(ControlPlaneError, PermissionDeniedError):
    """Neither the attempt's input nor an ancestor's artifacts name the resource."""

    reason = "RESOURCE_NOT_REFERENCED"


class ProviderMissingError(ControlPlaneError, FailedPreconditionError):
    """The application has no resource provider to ask."""

    reason = "RESOURCE_PROVIDER_MISSING"


class ProviderAnswerError(ControlPlaneError, FailedPreconditionError):
    """The provider refused, or answered a grant that cannot be used."""

    reason = "RESOURCE_PROVIDER_REFUSED"


class GrantNotFoundError(ControlPlaneError, NotFoundError):
    """The attempt has no such grant."""

    reason = "GRANT_NOT_FOUND"


class GrantMethod(StrEnum):
    """What a grant allows."""

    GET = "GET"
    PUT = "PUT"


@dataclass(frozen=True, slots=True)
class GrantHolder:
    """A node's claim to act for an attempt: all three must agree with what is stored."""

    node_id: str
    attempt_id: str
    lease_version: int


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """An attempt that is live on its node, with all that its provider is told of it."""

    holder: GrantHolder
    application_id: str
    task_id: str
    external_ref: str
    execution_id: str
    step_key: str
    item_index: int
    input_json: str
    snapshot_digest: str
    run_deadline_at: datetime | None
    now: datetime
    provider_url: str
    provider_secret: bytes | None = field(repr=False)

    @property
    def expires_at(self) -> datetime:
        """When its grants end at the latest: at the run deadline, in 15 minutes at most."""
        latest = self.now + GRANT_TTL_MAX
        return latest if self.run_deadline_at is None else min(latest, self.run_deadline_at)


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """What access is asked for; scope fields are both set or both empty."""

    key: str
    resource_ref: str
    method: GrantMethod
    scope_type: str = ""
    scope_ref: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """What a provider answered: the secret part of a grant. Times by the provider's clock."""

    url: str = field(repr=False)
    method: GrantMethod
    headers: Mapping[str, str] = field(repr=False)
    expires_at: datetime
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Grant:
    """Access under an id, so that it can be renewed."""

    grant_id: str
    request: GrantRequest
    access: Access


@dataclass(frozen=True, slots=True)
class ArtifactPlace:
    """One result file to come."""

    relative_path: str
    type: str
    media_type: str
    size_bytes_max: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """A place with the provider's reference and the grant to write it."""

    place: ArtifactPlace
    resource_ref: str
    grant: Grant


def references(document_json: str) -> frozenset[str]:
    """Return every string in a JSON document, at any depth."""
    return frozenset(_strings(json.loads(document_json or "null")))


def _strings(document: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON document
    pending = [document]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)


def ancestors(definition: WorkflowDefinition, step_key: str) -> frozenset[str]:
    """Return the keys of all steps that a step waits for, directly or not."""
    waits_for: dict[str, tuple[str, ...]] = {step.key: step.depends_on for step in definition.steps}
    found: set[str] = set()
    pending = list(waits_for.get(step_key, ()))
    while pending:
        key = pending.pop()
        if key not in found:
            found.add(key)
            pending.extend(waits_for.get(key, ()))
    return frozenset(found)


def check_request(request: GrantRequest) -> None:
    """Raise InvalidArgumentError for an empty reference or an incomplete scope."""
    if not request.resource_ref:
        raise InvalidArgumentError.of_field("resource_ref", "is empty: name the resource")
    if bool(request.scope_type) != bool(request.scope_ref):
        raise InvalidArgumentError.of_field(
            "scope_ref", "goes with scope_type: send both or neither"
        )
    if request.scope_type and request.method is GrantMethod.PUT:
        raise InvalidArgumentError.of_field("scope_type", "is for GET only: leave it out")


def check_places(places: tuple[ArtifactPlace, ...]) -> None:
    """Raise InvalidArgumentError naming the first place that cannot be allocated."""
    if not 1 <= len(places) <= ARTIFACTS_PER_CALL_MAX:
        raise InvalidArgumentError.of_field(
            "artifacts", f"has {len(places)} places: send 1 to {ARTIFACTS_PER_CALL_MAX} a call"
        )
    if len({place.relative_path for place in places}) < len(places):
        raise InvalidArgumentError.of_field("artifacts", "names one relative_path twice")
    for number, place in enumerate(places):
        problem = _problem_of(place)
        if problem:
            raise InvalidArgumentError.of_field(f"artifacts[{number}].{problem[0]}", problem[1])


def _problem_of(place: ArtifactPlace) -> tuple[str, str] | None:
    path = place.relative_path
    segments = path.split("/")
    if not path or len(path.encode()) > ARTIFACT_PATH_BYTES_MAX:
        return "relative_path", f"is empty or over {ARTIFACT_PATH_BYTES_MAX} bytes"
    if any(one in ("", ".", "..") for one in segments) or "\x00" in path or "\\" in path:
        return "relative_path", f"{path!r} is not a plain relative path with / between names"
    if len(place.type) > ARTIFACT_TYPE_CHARS_MAX:
        return "type", f"has {len(place.type)} characters, over {ARTIFACT_TYPE_CHARS_MAX}"
    if place.size_bytes_max < 1:
        return "size_bytes_max", f"is {place.size_bytes_max}: send at least 1"
    return None


def check_access(
    access: Access, method: GrantMethod, now: datetime, *, insecure_allowed: bool
) -> Access:
    """Return a provider's answer if it can be used; ProviderAnswerError says why not."""
    if access.method is not method:
        raise ProviderAnswerError(f"the provider answered {access.method} where {method} was asked")
    if access.expires_at <= now:
        raise ProviderAnswerError("the provider's grant has expired already: check its clock")
    scheme = access.url.partition("://")[0]
    if scheme != "https" and not (insecure_allowed and scheme == "http"):
        raise ProviderAnswerError(
            f"the provider's grant is a {scheme or 'malformed'} URL: use https"
        )
    return access


def grant_secret_place(application_id: str, grant_id: str) -> SecretPlace:
    """Return where a grant's URL and headers are sealed to."""
    return SecretPlace("grants", "secret", application_id, grant_id)
