"""The heartbeat tick: one renewal statement for all heartbeats heard since the last one."""

from random import Random

from control_plane.core.nodes.application import NodeSessions
from control_plane.core.nodes.leases import is_silent
from control_plane.core.nodes.ports import LeaseStore, NodeStore
from control_plane.core.nodes.session import (
    Heartbeat,
    HeartbeatAnswer,
    Session,
    heartbeat_list,
    replaced,
)
from control_plane.core.wakeups import LocalHints
from foundation.backoff import BackoffPolicy
from foundation.clock import Clock
from foundation.lifecycle.loops import DueLoop, LoopConfig


class LeaseTick:
    """Renews leases, stamps guard and replica, and writes what sessions show of their nodes."""

    def __init__(
        self,
        sessions: NodeSessions,
        leases: LeaseStore,
        nodes: NodeStore,
        hints: LocalHints,
        clock: Clock,
    ) -> None:
        self._sessions = sessions
        self._leases = leases
        self._nodes = nodes
        self._hints = hints
        self._clock = clock
        self._figures = sessions.figures
        # Heartbeats that come close together share a statement.
        self._spacing_s = sessions.figures.heartbeat_interval_s / 10
        self._next_at_s = clock.monotonic()
        self._stamped_at_s: float | None = None

    def loop(self, random: Random) -> DueLoop:
        """Return the loop; it is not to be stopped before the sessions are."""
        backoff = BackoffPolicy(base_s=0.05, cap_s=self._figures.heartbeat_interval_s)
        config = LoopConfig("lease-tick", self._figures.stamp_interval_s, backoff)
        return DueLoop(config, self.run_once, self._sessions.tick_wakeup, random)

    async def run_once(self) -> float | None:
        """Tick if it is time, and return when to look again, in seconds."""
        early_s = self._next_at_s - self._clock.monotonic()
        if early_s > 0:
            return early_s
        self._next_at_s = self._clock.monotonic() + self._spacing_s
        heard = self._sessions.live.heartbeat_lists()
        if heard or self._stamp_is_due():
            await self._tick(heard)
        await self._write_states()
        await self._sessions.note_closed()
        return None

    def _stamp_is_due(self) -> bool:
        # A little early, since the loop sleeps for just this long.
        interval_s = self._figures.stamp_interval_s * 0.9
        at_s = self._stamped_at_s
        return at_s is None or self._clock.monotonic() - at_s >= interval_s

    async def _tick(self, heard: list[tuple[Session, Heartbeat]]) -> None:
        live = self._sessions.live
        lists = [heartbeat_list(session, heartbeat) for session, heartbeat in heard]
        asked = list(live)
        try:
            result = await self._leases.tick([session.ref for session in asked], lists)
        except Exception:
            for session, heartbeat in heard:
                session.put_back(heartbeat)
            self._sessions.tick_wakeup.set()
            raise
        self._stamped_at_s = self._clock.monotonic()
        for session in asked:
            if session.ref.node_id in result.replaced:
                session.end(replaced(session))
        for session, heartbeat in heard:
            node_id = session.ref.node_id
            if node_id not in result.replaced:
                session.offer(
                    HeartbeatAnswer(
                        heartbeat.number,
                        result.renewed.get(node_id, ()),
                        result.lost.get(node_id, ()),
                    )
                )

    async def _write_states(self) -> None:
        now_s = self._clock.monotonic()
        states = [
            (session, state)
            for session in self._sessions.live
            if (
                state := session.state_to_write(
                    silent=is_silent(session.last_heard_s, now_s, self._figures),
                    now_s=now_s,
                    stale_after_s=self._figures.stall_after_s,
                )
            )
        ]
        if not states:
            return
        written = await self._nodes.write_states([state for _, state in states])
        came_back = [
            session.state_written(state, now_s)
            for session, state in states
            if state.session.node_id in written
        ]
        if any(came_back):
            self._hints.capacity_freed()
