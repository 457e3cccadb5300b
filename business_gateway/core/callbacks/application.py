"""Receives callbacks: signature, envelope, inbox; answered only once the event is durable."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from business_gateway.core.callbacks.domain import (
    RETRY_UNKNOWN_ORDER_S,
    Effect,
    OrderUnknownError,
    PlatformEvent,
)
from business_gateway.core.callbacks.envelope import (
    BODY_BYTES_MAX,
    CallbackTooLargeError,
    parse_envelope,
)
from business_gateway.core.callbacks.ports import Arrival, Inbox
from foundation.clock import Clock
from foundation.errors import TdpError
from foundation.signatures import SigningSecret, verify

SECRETS_MAX: Final = 2
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CallbackRules:
    """Whose callbacks are taken: our application's, signed by one of one or two secrets.

    With `drop` every callback is answered as if it were stored, and is not: it shows that
    compensation alone brings orders to their end.
    """

    application_id: str
    secrets: Sequence[SigningSecret] = field(repr=False)
    drop: bool = False

    def __post_init__(self) -> None:
        """Refuse a set of secrets that no rotation needs, with ValueError."""
        if not 1 <= len(self.secrets) <= SECRETS_MAX:
            raise ValueError(
                f"{len(self.secrets)} callback secrets are given: give the current one, and "
                "during a rotation the one before it as well"
            )


class CallbackIntake:
    """What both entrances do with a delivery."""

    def __init__(self, rules: CallbackRules, inbox: Inbox, clock: Clock) -> None:
        self._rules = rules
        self._inbox = inbox
        self._clock = clock
        # Since the start, for metrics: by effect, "dropped", and refusals by their reason.
        self.counts: Counter[str] = Counter()

    async def receive(self, signature: str | None, body: bytes) -> bool:
        """Take one delivery; return whether its event was known already.

        Raises CallbackTooLargeError, SignatureError, the errors of the envelope,
        OrderUnknownError, and what the inbox raises: none of them may be acknowledged.
        """
        try:
            event = self._checked(signature, body)
        except TdpError as error:
            self.counts[error.reason] += 1
            _log.warning("callback_refused", reason=error.reason, why=error.message)
            raise
        if self._rules.drop:
            return self._dropped(event)
        outcome = await self._inbox.add(Arrival(event))
        if outcome is None:
            self.counts[OrderUnknownError.reason] += 1
            raise _unknown(event)
        self.counts[outcome.effect] += 1
        return outcome.effect is Effect.DUPLICATE

    def _checked(self, signature: str | None, body: bytes) -> PlatformEvent:
        if len(body) > BODY_BYTES_MAX:
            raise CallbackTooLargeError(
                f"the body has {len(body)} bytes, more than {BODY_BYTES_MAX}: it cannot be taken"
            )
        verify(signature, body, self._rules.secrets, self._clock.now().timestamp())
        return parse_envelope(body, self._rules.application_id)

    def _dropped(self, event: PlatformEvent) -> bool:
        self.counts["dropped"] += 1
        _log.warning(
            "callback_dropped",
            event_id=event.event_id,
            execution_id=event.execution_id,
            sequence=event.sequence,
            why="TDP_GATEWAY_DROP_CALLBACKS is set",
        )
        return False


def _unknown(event: PlatformEvent) -> OrderUnknownError:
    known_by = f"external_ref {event.external_ref!r}" if event.external_ref else "no external_ref"
    return OrderUnknownError(
        f"no order goes by {known_by} and execution {event.execution_id}: deliver it again later",
        retry_delay_s=RETRY_UNKNOWN_ORDER_S,
        metadata={"execution_id": event.execution_id},
    )
