"""How an agent gets its identity: a credential of its own making, and a join token, once."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Protocol

import structlog

from foundation.backoff import BackoffPolicy
from foundation.errors import TdpError
from foundation.failpoints import failpoint
from node_agent.errors import EnrolmentRefusedError

_BACKOFF: Final = BackoffPolicy(base_s=1.0, cap_s=30.0)
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SavedCredential:
    """What the credential's file holds; `node_id` is empty while the enrolment is under way."""

    node_name: str
    idempotency_key: str
    credential: str = field(repr=False)
    node_id: str = ""

    @property
    def sha256(self) -> bytes:
        """The hash by which the control plane knows the credential."""
        return hashlib.sha256(self.credential.encode("utf-8")).digest()


class CredentialFile(Protocol):
    """Where the credential is kept, beside the journal."""

    def load_credential(self) -> SavedCredential | None:
        """Read it; None if there is none."""
        ...

    def save_credential(self, credential: SavedCredential) -> None:
        """Replace it; on disk when it returns."""
        ...


class EnrolmentService(Protocol):
    """The control plane's side."""

    async def enrol(
        self, join_token: str, idempotency_key: str, node_name: str, credential_sha256: bytes
    ) -> str:
        """Return the node's id; a repeated call with the same key returns the same one."""
        ...


@dataclass(frozen=True, slots=True)
class EnrolmentOrder:
    """Who wants to enrol; without a join token only what was begun or done before counts."""

    node_name: str
    join_token: str | None = field(repr=False)


class Enrolment:
    """Finds the saved identity, or gets one; a crash at any point repeats the very same call."""

    def __init__(
        self,
        file: CredentialFile,
        service: EnrolmentService,
        new_id: Callable[[], str],
        new_credential: Callable[[], str],
        random: Random,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._file = file
        self._service = service
        self._new_id = new_id
        self._new_credential = new_credential
        self._random = random
        self._sleep = sleep

    async def ensure(self, order: EnrolmentOrder) -> SavedCredential:
        """Return the enrolled identity; asks for it as long as the control plane is away.

        Raises EnrolmentRefusedError: refused, or not enrolled and no join token given.
        """
        saved = self._file.load_credential()
        if saved is not None and saved.node_id:
            return saved
        if order.join_token is None:
            raise EnrolmentRefusedError(
                "this agent is not enrolled: create a join token and give it as "
                "TDP_AGENT_JOIN_TOKEN, once"
            )
        begun = self._begin(saved, order.node_name)
        await failpoint("agent.enrol.before")
        node_id = await self._ask(begun, order.join_token)
        await failpoint("agent.enrol.after")
        done = replace(begun, node_id=node_id)
        self._file.save_credential(done)
        _log.info("node_enrolled", node_id=node_id, node_name=done.node_name)
        return done

    def _begin(self, saved: SavedCredential | None, node_name: str) -> SavedCredential:
        """Take up the enrolment under way; else store a new one before anything is sent."""
        if saved is not None and saved.node_name == node_name:
            return saved
        begun = SavedCredential(node_name, self._new_id(), self._new_credential())
        self._file.save_credential(begun)
        return begun

    async def _ask(self, begun: SavedCredential, join_token: str) -> str:
        failures = 0
        while True:
            try:
                return await self._service.enrol(
                    join_token, begun.idempotency_key, begun.node_name, begun.sha256
                )
            except TdpError as error:
                failures += 1
                if not error.retryable:
                    raise EnrolmentRefusedError(
                        f"the control plane refuses to enrol {begun.node_name!r} "
                        f"({error.reason}): {error.message}"
                    ) from error
                _log.warning("enrolment_failed", error=error.message, failures=failures)
            await self._sleep(_BACKOFF.delay_s(failures, self._random))
