"""What a session needs: a stream to the control plane, and those whom its messages concern."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from node_agent.core.session.lease_clock import HeldLease, SessionNumber
from node_agent.core.session.messages import (
    Command,
    Down,
    HeldAttempt,
    Inventory,
    MachineUsage,
    Readiness,
    Up,
    Verdict,
)


class SessionStream(Protocol):
    """One bidirectional stream, read by one task and written by one task."""

    def limit_messages(self, size_bytes_max: int) -> None:
        """Take the size of the largest message that the server takes."""
        ...

    async def write(self, generation: int, message: Up) -> None:
        """Hand a message to the transport, which says nothing of its arrival.

        Raises MessageTooLargeError before anything is written, SessionLostError,
        SessionRefusedError.
        """
        ...

    async def read(self) -> Down | None:
        """Return the next message, None once the server has ended the stream in order.

        Raises SessionLostError, or SessionRefusedError (the credential is not accepted).
        """
        ...

    async def finish(self) -> None:
        """Say that nothing more will be written."""
        ...


class SessionTransport(Protocol):
    """Opens streams, each to the next of the known addresses."""

    def open(self) -> AbstractAsyncContextManager[SessionStream]:
        """Open a stream, which is closed for good when the context ends."""
        ...


class Attempts(Protocol):
    """The attempts of this agent; none of these calls waits."""

    def held(self) -> Sequence[HeldAttempt]:
        """Every attempt that is unfinished or whose final event is not acknowledged."""
        ...

    def credits_for_hello(self) -> int:
        """RUN commands that may be sent in a session that begins now."""
        ...

    def check_deadlines(self) -> None:
        """Stop what is past its lease; called after every wait, before all else."""
        ...

    def judged(self, session: SessionNumber, lease: HeldLease, verdict: Verdict) -> None:
        """Take Welcome's verdict on a held attempt."""
        ...

    def renewed(self, session: SessionNumber, lease: HeldLease, heartbeat_number: int) -> None:
        """Take a renewal."""
        ...

    def lost(self, lease: HeldLease) -> None:
        """Stop an attempt whose lease is lost, without a report."""
        ...


class CommandIntake(Protocol):
    """Stores commands, acknowledges them, then lets them have their effect."""

    @property
    def last_sequence(self) -> int:
        """The watermark of stored commands."""
        ...

    def offer(self, session: SessionNumber, commands: Sequence[Command]) -> None:
        """Queue commands; SessionLostError if far more wait than any window allows."""
        ...

    async def new_session(self) -> None:
        """Drop what is not being stored (the server sends it again), and end what is."""
        ...


class Machine(Protocol):
    """The machine and the process as a whole."""

    def inventory(self) -> Inventory:
        """What the machine has now."""
        ...

    def usage(self) -> MachineUsage:
        """How busy the machine is, on average since the last call; cheap."""
        ...

    def boot_clock_s(self) -> float:
        """Seconds of a clock that never goes back and counts while the machine sleeps."""
        ...


class ReadinessSource(Protocol):
    """Says whether the agent takes new work."""

    def readiness(self) -> Readiness:
        """Whether, and why not."""
        ...
