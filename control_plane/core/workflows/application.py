"""The use cases of workflows: publish, read, deprecate."""

from collections.abc import Sequence

from control_plane.core.errors import ControlPlaneError
from control_plane.core.expressions.ports import ExpressionCompiler
from control_plane.core.workflows.ports import PublishedWorkflow, WorkflowStore
from control_plane.core.workflows.publishing import CheckedDefinition, check_definition
from foundation.clock import Clock
from foundation.errors import AlreadyExistsError, FailedPreconditionError, NotFoundError
from foundation.principals import Principal, PrincipalKind, Scope


class WorkflowNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such published workflow or version."""

    reason = "WORKFLOW_NOT_FOUND"


class WorkflowVersionTakenError(ControlPlaneError, AlreadyExistsError):
    """Other content is published under this name and version."""

    reason = "WORKFLOW_VERSION_TAKEN"


class WorkflowDeprecatedError(ControlPlaneError, FailedPreconditionError):
    """The version was named exactly, and it is deprecated."""

    reason = "WORKFLOW_DEPRECATED"


class Workflows:
    """What operators do with definitions, and what everyone reads of them."""

    def __init__(self, store: WorkflowStore, compiler: ExpressionCompiler, clock: Clock) -> None:
        self._store = store
        self._compiler = compiler
        self._clock = clock

    async def publish(
        self, principal: Principal, definition: str, *, validate_only: bool
    ) -> tuple[PublishedWorkflow, bool, tuple[str, ...]]:
        """Check and store a definition; return it, whether it is new, and warnings.

        Raises DefinitionInvalidError naming every wrong key, WorkflowVersionTakenError.
        """
        principal.require_kind(PrincipalKind.OPERATOR)
        principal.require_scope(Scope.ADMIN)
        known = await self._store.known_capabilities()
        checked = check_definition(
            definition, self._compiler, lambda name, version: (name, version) in known
        )
        name, version = checked.definition.name, checked.definition.version
        if validate_only:
            return self._unpublished(checked), False, checked.warnings
        found, created = await self._store.publish(
            name, version, checked.digest, checked.canonical_json
        )
        if found.digest != checked.digest:
            raise WorkflowVersionTakenError(
                f"workflow {name} {version} is published with other content (digest "
                f"{found.digest[:12]}…, yours is {checked.digest[:12]}…): raise the version",
                existing_id=f"{name}/{version}",
            )
        return found, created, checked.warnings

    async def get(self, principal: Principal, name: str, version: str) -> PublishedWorkflow:
        """Read one version, the newest for an empty one; WorkflowNotFoundError."""
        principal.require_scope(Scope.READ)
        return await self._found(name, version)

    async def list(
        self, principal: Principal, name: str, after: tuple[str, str] | None, limit: int
    ) -> Sequence[PublishedWorkflow]:
        """Read a page of versions."""
        principal.require_scope(Scope.READ)
        return await self._store.list(name, after, limit)

    async def deprecate(self, principal: Principal, name: str, version: str) -> PublishedWorkflow:
        """Keep a version from new tasks; WorkflowNotFoundError."""
        principal.require_kind(PrincipalKind.OPERATOR)
        principal.require_scope(Scope.ADMIN)
        found = await self._store.deprecate(name, version)
        if found is None:
            raise _not_found(name, version)
        return found

    async def resolve(self, name: str, version: str) -> PublishedWorkflow:
        """Find what a new task runs; WorkflowNotFoundError, WorkflowDeprecatedError."""
        found = await self._found(name, version)
        if found.deprecated_at is not None:
            raise WorkflowDeprecatedError(
                f"workflow {name} {version} is deprecated: name a newer version, or none"
            )
        return found

    async def _found(self, name: str, version: str) -> PublishedWorkflow:
        found = await self._store.get(name, version)
        if found is None:
            raise _not_found(name, version)
        return found

    def _unpublished(self, checked: CheckedDefinition) -> PublishedWorkflow:
        definition = checked.definition
        return PublishedWorkflow(
            name=definition.name,
            version=definition.version,
            digest=checked.digest,
            definition_json=checked.canonical_json,
            published_at=self._clock.now(),
            deprecated_at=None,
        )


def _not_found(name: str, version: str) -> WorkflowNotFoundError:
    wanted = f"{name} {version}".strip() if version else f"{name} (any version)"
    return WorkflowNotFoundError(
        f"there is no published workflow {wanted}: publish it, or check name and version"
    )
