"""The command sender: marks the commands of woken nodes as SENT and hands them to their streams."""

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Final

from control_plane.core.nodes.domain import CommandDemand, SentCommand
from control_plane.core.nodes.ports import CommandStore, RemoteNodeWakeups
from control_plane.core.nodes.session import CommandsOut, LiveSessions, Session
from control_plane.core.wakeups import LocalHints
from foundation.clock import Clock
from foundation.lifecycle.loops import DueLoop, LoopConfig

NODES_PER_ROUND_MAX: Final = 500
SWEEP_INTERVAL_S: Final = 5.0


class CommandSender:
    """Sends the commands of the nodes in session here; hints about others are passed on."""

    def __init__(
        self,
        live: LiveSessions,
        commands: CommandStore,
        remote: RemoteNodeWakeups,
        hints: LocalHints,
        clock: Clock,
        sweep_interval_s: float = SWEEP_INTERVAL_S,
    ) -> None:
        self._live = live
        self._commands = commands
        self._remote = remote
        self._hints = hints
        self._clock = clock
        self._sweep_interval_s = sweep_interval_s
        self._sweep_at_s = clock.monotonic() + sweep_interval_s

    def loop(self, random: Random) -> DueLoop:
        """Return the loop."""
        config = LoopConfig("command-sender", self._sweep_interval_s)
        return DueLoop(config, self.run_once, self._hints.nodes.wakeup, random)

    async def run_once(self) -> float | None:
        """Send what the hinted nodes have; sweep where it is time; return when that is next."""
        await self._sweep_if_due()
        node_ids = self._hints.nodes.take(NODES_PER_ROUND_MAX)
        try:
            await self._send(node_ids)
        except Exception:
            # The hint was taken: give it back, or only the sweep would know.
            self._hints.nodes.add(node_ids)
            raise
        if len(node_ids) == NODES_PER_ROUND_MAX:
            return 0.0
        return max(self._sweep_at_s - self._clock.monotonic(), 0.0)

    async def _sweep_if_due(self) -> None:
        if self._clock.monotonic() < self._sweep_at_s:
            return
        self._sweep_at_s = self._clock.monotonic() + self._sweep_interval_s
        here = [session.ref.node_id for session in self._live if session.can_take]
        if here:
            self._live.wake(await self._commands.undelivered(here))

    async def _send(self, node_ids: Sequence[str]) -> None:
        found = {one: self._live.get(one) for one in node_ids}
        here = {
            node_id: session
            for node_id, session in found.items()
            if session is not None and session.can_take
        }
        # The number has to be read before the lease's remaining time is.
        numbers = {node_id: one.last_heartbeat_number for node_id, one in here.items()}
        taken = await self._commands.take([_demand(session) for session in here.values()])
        for node_id, commands in groupby(taken, key=lambda one: one.node_id):
            _hand_over(here[node_id], list(commands), numbers[node_id])
        away = [node_id for node_id, session in found.items() if session is None]
        if away:
            await self._remote.wake(away)


def _demand(session: Session) -> CommandDemand:
    return CommandDemand(session.ref, max(session.credit_count, 0), session.window_size)


def _hand_over(session: Session, commands: list[SentCommand], heartbeat_number: int) -> None:
    session.commands_taken(commands)
    session.offer(CommandsOut(commands, heartbeat_number))
