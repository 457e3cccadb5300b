"""The times that nodes and control planes share, and the relations that they must keep."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseFigures:
    """The times that nodes and control planes share, in seconds.

    Raises:
        ValueError: the figures contradict one another; the message names the relation.
    """

    lease_ttl_s: float
    heartbeat_interval_s: float
    scheduling_ttl_s: float
    stop_budget_s: float
    """The longest that a node may take to end an attempt once its deadline has passed."""

    def __post_init__(self) -> None:
        """Assert the relations that the rules below rest on."""
        relations = (
            ("heartbeat_interval_s > 0", self.heartbeat_interval_s > 0),
            (
                "3 * heartbeat_interval_s <= scheduling_ttl_s",
                3 * self.heartbeat_interval_s <= self.scheduling_ttl_s,
            ),
            ("scheduling_ttl_s <= lease_ttl_s / 2", self.scheduling_ttl_s <= self.stall_after_s),
            (
                "stop_budget_s <= lease_ttl_s / 12",
                0 <= self.stop_budget_s <= self.lease_ttl_s / 12,
            ),
            (
                "lease_ttl_s / 6 + heartbeat + answer_silence + reconnect_backoff <= node_deadline",
                self.lease_ttl_s / 6
                + self.heartbeat_interval_s
                + self.answer_silence_s
                + self.reconnect_backoff_s_max
                <= self.node_deadline_s,
            ),
        )
        broken = [text for text, holds in relations if not holds]
        if broken:
            message = f"lease figures {self!r} break {broken}; raise lease_ttl_s or lower the rest"
            raise ValueError(message)

    @property
    def renew_below_s(self) -> float:
        """A listed lease with less than this left is renewed: 5/6 of the TTL."""
        return self.lease_ttl_s * 5 / 6

    @property
    def margin_s(self) -> float:
        """How much earlier than the lease's end a node stops: TTL/6."""
        return self.lease_ttl_s / 6

    @property
    def node_deadline_s(self) -> float:
        """How long after sending a heartbeat its renewal lets a node run: 5/6 of the TTL."""
        return self.lease_ttl_s - self.margin_s

    @property
    def stamp_interval_s(self) -> float:
        """How often the lease guard is stamped while leases live: TTL/12."""
        return self.lease_ttl_s / 12

    @property
    def stall_after_s(self) -> float:
        """A lease guard older than this shows a stall on the server's side: TTL/2."""
        return self.lease_ttl_s / 2

    @property
    def hold_s(self) -> float:
        """How long nothing expires after a stall was noticed: one TTL."""
        return self.lease_ttl_s

    @property
    def answer_silence_s(self) -> float:
        """A node whose newest answered heartbeat is older than this moves on: TTL/3."""
        return self.lease_ttl_s / 3

    @property
    def reconnect_backoff_s_max(self) -> float:
        """The longest pause between two attempts of a node to open a session: TTL/12."""
        return self.lease_ttl_s / 12


PRODUCTION_FIGURES = LeaseFigures(
    lease_ttl_s=60.0, heartbeat_interval_s=5.0, scheduling_ttl_s=15.0, stop_budget_s=5.0
)
TEST_FIGURES = LeaseFigures(
    lease_ttl_s=3.0, heartbeat_interval_s=0.5, scheduling_ttl_s=1.5, stop_budget_s=0.25
)
