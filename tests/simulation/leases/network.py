"""Streams between nodes and replicas: ordered, delayed, cut one way or both, half-open."""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.leases.kernel import Action, Kernel
from tests.simulation.leases.messages import Down, Up

if TYPE_CHECKING:
    from tests.simulation.leases.node import Node
    from tests.simulation.leases.replica import Replica

UP, DOWN = "up", "down"
Direction = tuple[str, int, str]


@dataclass(slots=True, eq=False)
class Stream:
    """One bidirectional stream between one life of a node and one of a replica."""

    network: "Network"
    node: "Node"
    replica: "Replica"
    node_life: int
    replica_life: int
    node_open: bool = True
    replica_open: bool = True
    last_arrival_s: dict[str, float] = field(default_factory=dict)

    def send_up(self, message: Up) -> None:
        if self.node_open:
            self.network.carry(self, UP, lambda: self.replica.on_message(self, message))

    def send_down(self, message: Down) -> None:
        if self.replica_open:
            self.network.carry(self, DOWN, lambda: self.node.on_message(self, message))

    def close_by_node(self) -> None:
        """Close the node's end; the other learns of it behind everything sent before."""
        if self.node_open:
            self.node_open = False
            self.network.carry(self, UP, lambda: self.replica.on_message(self, None))

    def close_by_replica(self) -> None:
        if self.replica_open:
            self.replica_open = False
            self.network.carry(self, DOWN, lambda: self.node.on_message(self, None))


class Network:
    """Carries messages, late where a direction is cut, never out of their order."""

    def __init__(self, kernel: Kernel, random: Random) -> None:
        self.kernel = kernel
        self.random = random
        self.cut_until_s: dict[Direction, float] = {}

    def cut(self, node_id: str, replica: int, way: str, duration_s: float) -> None:
        key = (node_id, replica, way)
        end_s = self.kernel.now_s + duration_s
        self.cut_until_s[key] = max(end_s, self.cut_until_s.get(key, 0.0))

    def is_cut(self, node_id: str, replica: int, way: str) -> bool:
        return self.cut_until_s.get((node_id, replica, way), 0.0) > self.kernel.now_s

    def carry(self, stream: Stream, way: str, hand_over: Action) -> None:
        delay_s = self.random.uniform(0.001, 0.02)
        if self.random.random() < 0.01:
            delay_s += self.random.uniform(0.0, 0.3)
        arrival_s = max(self.kernel.now_s + delay_s, stream.last_arrival_s.get(way, 0.0))
        self._arrive_at(stream, way, hand_over, arrival_s)

    def _arrive_at(self, stream: Stream, way: str, hand_over: Action, arrival_s: float) -> None:
        key = (stream.node.node_id, stream.replica.index, way)
        cut_until_s = self.cut_until_s.get(key, 0.0)
        if cut_until_s > arrival_s:
            arrival_s = cut_until_s + 0.001
        stream.last_arrival_s[way] = max(arrival_s, stream.last_arrival_s.get(way, 0.0))
        self.kernel.at(arrival_s, lambda: self._arrive(stream, way, hand_over))

    def _arrive(self, stream: Stream, way: str, hand_over: Action) -> None:
        if self.is_cut(stream.node.node_id, stream.replica.index, way):
            self._arrive_at(stream, way, hand_over, self.kernel.now_s)
        elif way == UP:
            stream.replica.deliver(stream.replica_life, hand_over)
        else:
            stream.node.deliver(stream.node_life, hand_over)
