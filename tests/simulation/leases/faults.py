"""What goes wrong: a seeded plan of faults, one at a time (spaced) or overlapping (chaos)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.leases.database import ATTEMPTS_TABLE, GUARD, Key
from tests.simulation.leases.network import DOWN, UP

if TYPE_CHECKING:
    from tests.simulation.leases.node import Node
    from tests.simulation.leases.world import World

Fault = Callable[[], float]
"""Does the harm at once; returns how long it lasts, in seconds."""


class Faults:
    """Each method is one fault; `plan` spreads them over the run."""

    def __init__(self, world: "World", focus: tuple[str, ...]) -> None:
        self.world = world
        self.random = world.random
        self.ttl_s = world.figures.lease_ttl_s
        self.log: list[str] = []
        self.all: dict[str, Fault] = {
            "stall_one_replica": self.stall_one_replica,
            "stall_all_replicas": self.stall_all_replicas,
            "kill_one_replica": self.kill_one_replica,
            "kill_all_replicas": self.kill_all_replicas,
            "lock_rows": self.lock_rows,
            "lock_table_or_guard": self.lock_table_or_guard,
            "slow_commits": self.slow_commits,
            "slow_replies": self.slow_replies,
            "restart_database": self.restart_database,
            "block_sessions": self.block_sessions,
            "clock_goes_back": self.clock_goes_back,
            "clock_goes_forward": self.clock_goes_forward,
            "kill_node": self.kill_node,
            "lose_journal": self.lose_journal,
            "suspend_node": self.suspend_node,
            "cut_node": self.cut_node,
            "cut_one_way": self.cut_one_way,
            "cut_pair": self.cut_pair,
            "cut_unevenly": self.cut_unevenly,
            "ambush_run": lambda: self.ambush("Run"),
            "ambush_reply": lambda: self.ambush("HeartbeatReply"),
        }
        self._ambushes: dict[str, float] = {}
        if not world.is_spaced:
            self.all["fail_commits"] = self.fail_commits
        self.names = tuple(name for name in focus if name in self.all) or tuple(self.all)

    def plan(self, until_s: float) -> None:
        """Spread faults: alone with time to recover in spaced runs, freely in chaos."""
        if self.world.is_spaced:
            self._next_spaced(until_s)
            return
        for _ in range(self.random.randrange(4, 18)):
            self.world.kernel.at(self.random.uniform(2.0, until_s), self.strike)

    def _next_spaced(self, until_s: float) -> None:
        def go() -> None:
            lasts_s = self.strike()
            if self.world.kernel.now_s + lasts_s < until_s:
                self.world.kernel.after(lasts_s + 3 * self.ttl_s, go)

        self.world.kernel.after(self.random.uniform(2.0, 5.0), go)

    def strike(self) -> float:
        name = self.random.choice(self.names)
        lasts_s = self.all[name]()
        self.log.append(f"{self.world.kernel.now_s:.2f} {name} for {lasts_s:.2f} s")
        return lasts_s

    def _span(self, least: float, most: float) -> float:
        return self.random.uniform(least, most) * self.ttl_s

    def _server(self, lasts_s: float) -> float:
        end_s = self.world.kernel.now_s + lasts_s
        self.world.server_disturbed_until_s = max(self.world.server_disturbed_until_s, end_s)
        return lasts_s

    def _disturb(self, node: "Node", lasts_s: float) -> float:
        end_s = self.world.kernel.now_s + lasts_s + 2.5 * self.ttl_s
        node.disturbed_until_s = max(node.disturbed_until_s, end_s)
        return lasts_s

    def _gone(self, node: "Node", lasts_s: float) -> float:
        """Note that nothing gets from the node to the servers for a while."""
        since_s = self.world.kernel.now_s
        if node.unreachable_since_s is None:
            node.unreachable_since_s = since_s

            def back() -> None:
                node.unreachable_since_s = None

            self.world.kernel.after(lasts_s, back)
        return self._disturb(node, lasts_s)

    # --- The server's side. ---

    def stall_one_replica(self) -> float:
        lasts_s = self._span(0.1, 10)
        self.random.choice(self.world.replicas).stall(lasts_s)
        return self._server(lasts_s)

    def stall_all_replicas(self) -> float:
        lasts_s = self._span(0.1, 5)
        for replica in self.world.replicas:
            replica.stall(lasts_s * self.random.uniform(0.9, 1.0))
        return self._server(lasts_s)

    def kill_one_replica(self) -> float:
        lasts_s = self._span(0.05, 4)
        self.world.kill_replica(self.random.choice(self.world.replicas), lasts_s)
        return self._server(lasts_s)

    def kill_all_replicas(self) -> float:
        lasts_s = self.random.choice([self._span(0.1, 2), 10 * self.ttl_s])
        for replica in self.world.replicas:
            self.world.kill_replica(replica, lasts_s * self.random.uniform(0.9, 1.0))
        return self._server(lasts_s)

    def lock_rows(self) -> float:
        """Lock some attempts' or nodes' rows for up to ten TTL."""
        lasts_s = self._span(0.1, 10)
        keys: list[Key] = [("attempts", one) for one in sorted(self.world.live)]
        keys += [("nodes", one) for one in self.world.nodes]
        for key in self.random.sample(keys, min(len(keys), self.random.randrange(1, 5))):
            self.world.database.hold_lock(key, lasts_s)
        return self._server(lasts_s)

    def lock_table_or_guard(self) -> float:
        lasts_s = self._span(0.1, 10)
        self.world.database.hold_lock(self.random.choice([ATTEMPTS_TABLE, GUARD]), lasts_s)
        return self._server(lasts_s)

    def slow_commits(self) -> float:
        lasts_s = self._span(0.5, 3)
        choices = [(0.1, 0.3), (0.3, 0.2), (0.5, 0.0)]
        if not self.world.is_spaced:
            choices += [(2.0, 0.3), (1.0, 0.0), (0.3, 0.8)]
        slowest_s, failing = self.random.choice(choices)
        self.world.database.slow_commits(slowest_s, failing, lasts_s)
        return self._server(lasts_s + slowest_s)

    def slow_replies(self) -> float:
        """Let what was committed at once be told late."""
        lasts_s = self._span(0.5, 3)
        slowest_s = 0.3 if self.world.is_spaced else self.random.choice([0.3, 1.0, 2.0])
        self.world.database.slow_replies(slowest_s, lasts_s)
        return self._server(lasts_s + slowest_s)

    def restart_database(self) -> float:
        lasts_s = self._span(0.05, 4)
        self.world.database.restart(lasts_s)
        return self._server(lasts_s)

    def block_sessions(self) -> float:
        """Let the sessions' database connections hang while sweeps go on."""
        lasts_s = self._span(0.3, 5)
        chosen = self.random.choice([self.world.replicas, self.world.replicas[:1]])
        for replica in chosen:
            replica.sessions_blocked_until_s = self.world.kernel.now_s + lasts_s
        return self._server(lasts_s)

    def clock_goes_back(self) -> float:
        self.world.database.clock_offset_s -= self.random.choice([4.0, 600.0, 3600.0])
        return self._server(self.ttl_s)

    def clock_goes_forward(self) -> float:
        """Jump by more than TTL/2; a smaller jump is outside the rules (see the ADR)."""
        self.world.database.clock_offset_s += self.random.choice([4.0, 600.0, 3600.0])
        return self._server(self.ttl_s)

    # --- Nodes and links. ---

    def _node(self) -> "Node":
        return self.random.choice(list(self.world.nodes.values()))

    def kill_node(self) -> float:
        node = self._node()
        lasts_s = self._span(0.02, 6)
        self.world.kill_node(node, lasts_s)
        return self._gone(node, lasts_s)

    def lose_journal(self) -> float:
        node = self._node()
        lasts_s = self._span(0.02, 1)
        self.world.kill_node(node, lasts_s)
        node.lose_journal()
        return self._gone(node, lasts_s)

    def suspend_node(self) -> float:
        node = self._node()
        lasts_s = self._span(0.1, 5)
        if node.is_alive:
            node.stall(lasts_s)
        return self._gone(node, lasts_s)

    def cut_node(self) -> float:
        node = self._node()
        lasts_s = self._span(0.1, 5)
        for replica in self.world.replicas:
            self.world.network.cut(node.node_id, replica.index, UP, lasts_s)
            self.world.network.cut(node.node_id, replica.index, DOWN, lasts_s)
        return self._gone(node, lasts_s)

    def cut_one_way(self) -> float:
        node = self._node()
        lasts_s = self._span(0.1, 5)
        way = self.random.choice([UP, DOWN])
        for replica in self.world.replicas:
            self.world.network.cut(node.node_id, replica.index, way, lasts_s)
        return self._disturb(node, lasts_s)

    def cut_pair(self) -> float:
        node = self._node()
        lasts_s = self._span(0.1, 5)
        replica = self.random.choice(self.world.replicas)
        for way in self.random.choice([(UP,), (DOWN,), (UP, DOWN)]):
            self.world.network.cut(node.node_id, replica.index, way, lasts_s)
        return self._disturb(node, lasts_s)

    def cut_unevenly(self) -> float:
        """Hold back what comes down, then cut what goes up for much longer."""
        node = self._node()
        late_s, lasts_s = self._span(0.2, 0.6), self._span(1.5, 4)

        def cut_up() -> None:
            for replica in self.world.replicas:
                self.world.network.cut(node.node_id, replica.index, UP, lasts_s)
            self._gone(node, lasts_s)

        for replica in self.world.replicas:
            self.world.network.cut(node.node_id, replica.index, DOWN, late_s)
        self.world.kernel.after(self.random.uniform(0.1, 0.6) * late_s, cut_up)
        return self._disturb(node, late_s + lasts_s)

    def fail_commits(self) -> float:
        """Let most commits fail, far beyond what healthy nodes could be promised to survive."""
        lasts_s = self._span(1, 4)
        self.world.database.slow_commits(0.3, 0.85, lasts_s)
        return self._server(lasts_s)

    def ambush(self, kind: str) -> float:
        """Wait for the next message of a kind, to cut its receiver off at that very moment."""
        self._ambushes[kind] = self.world.kernel.now_s + self.ttl_s
        return 5 * self.ttl_s

    def received(self, node: "Node", kind: str) -> None:
        """Spring the ambush that waits for this message, if there is one."""
        if self._ambushes.get(kind, 0.0) < self.world.kernel.now_s:
            return
        del self._ambushes[kind]
        lasts_s = self._span(1.5, 4)
        for replica in self.world.replicas:
            self.world.network.cut(node.node_id, replica.index, UP, lasts_s)
        self._gone(node, lasts_s)
