"""The shared database: row and table locks, SKIP LOCKED, slow and failing commits, its own clock.

A transaction waits for the locks it names, runs its body at one instant on committed rows, and
commits later; until then its row locks are held and its writes unseen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from control_plane.core.nodes.leases import DatabaseSeconds, LeaseGuard
from tests.simulation.leases.kernel import Kernel, Process

Key = tuple[str, str]
GUARD: Key = ("guard", "")
ATTEMPTS_TABLE: Key = ("table", "attempts")


@dataclass(slots=True)
class Transaction:
    """One running transaction: what it locked, what it would write, what its body returned."""

    database: "Database"
    process: Process
    life: int
    waits_for: Sequence[Key]
    body: "Body"
    reply: "Reply"
    locks: set[Key] = field(default_factory=set)
    writes: dict[Key, Any] = field(default_factory=dict)
    result: Any = None

    def get(self, table: str, key: str = "") -> Any:  # noqa: ANN401 - rows of several kinds
        name = (table, key)
        return self.writes[name] if name in self.writes else self.database.rows.get(name)

    def put(self, table: str, key: str, row: object) -> None:
        self.writes[table, key] = row

    def is_locked(self, key: Key) -> bool:
        return self.database.locks.get(key, self) is not self

    def lock(self, key: Key) -> bool:
        if self.is_locked(key):
            return False
        self.database.locks[key] = self
        self.locks.add(key)
        return True


Body = Callable[[Transaction], Any]
Reply = Callable[[Any], None]


class Database:
    """Rows by (table, key), and who holds which lock."""

    def __init__(self, kernel: Kernel, random: Random) -> None:
        self.kernel = kernel
        self.random = random
        self.rows: dict[Key, Any] = {GUARD: LeaseGuard(DatabaseSeconds(0.0), DatabaseSeconds(0.0))}
        self.locks: dict[Key, object] = {}
        self.clock_offset_s = 1_000_000.0
        self.is_down = False
        self.boot = 0
        self.commit_delay_s_max = 0.003
        self.commit_failure_rate = 0.0
        self.reply_delay_s_max = 0.003
        self.on_commit: Callable[[dict[Key, Any], dict[Key, Any]], None] = lambda *_: None
        self._waiting: list[Transaction] = []
        self._running: list[Transaction] = []

    def now_s(self) -> DatabaseSeconds:
        return DatabaseSeconds(self.kernel.now_s + self.clock_offset_s)

    def submit(self, process: Process, waits_for: Sequence[Key], body: Body, reply: Reply) -> None:
        """Send a transaction; `reply` gets the body's result, or None if it failed."""
        transaction = Transaction(self, process, process.life, waits_for, body, reply)
        self.kernel.after(self.random.uniform(0.0005, 0.003), lambda: self._arrive(transaction))

    def _arrive(self, transaction: Transaction) -> None:
        if self.is_down:
            self._answer(transaction, None)
            return
        for key in transaction.waits_for:
            if key in self.locks:
                self._waiting.append(transaction)
                return
        self._begin(transaction)

    def _start_waiting(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        locks = self.locks
        for transaction in waiting:
            for key in transaction.waits_for:
                if key in locks:
                    self._waiting.append(transaction)
                    break
            else:
                self._begin(transaction)

    def _begin(self, transaction: Transaction) -> None:
        for key in transaction.waits_for:
            if key[0] != "table":
                transaction.lock(key)
        transaction.result = transaction.body(transaction)
        self._running.append(transaction)
        delay_s = self.random.uniform(0.0005, self.commit_delay_s_max)
        self.kernel.after(delay_s, lambda: self._end(transaction))

    def _end(self, transaction: Transaction) -> None:
        if transaction not in self._running:
            return
        self._running.remove(transaction)
        failed = self.random.random() < self.commit_failure_rate
        if not failed:
            self.on_commit(self.rows, transaction.writes)
            self.rows.update(transaction.writes)
        self._release(transaction)
        self._answer(transaction, None if failed else transaction.result)

    def _release(self, holder: object) -> None:
        keys = holder.locks if isinstance(holder, Transaction) else set(self.locks)
        for key in sorted(keys):
            if self.locks.get(key) is holder:
                del self.locks[key]
        self._start_waiting()

    def _answer(self, transaction: Transaction, result: object) -> None:
        process, life, reply = transaction.process, transaction.life, transaction.reply
        self.kernel.after(
            self.random.uniform(0.0005, self.reply_delay_s_max),
            lambda: process.deliver(life, lambda: reply(result)),
        )

    def hold_lock(self, key: Key, duration_s: float) -> None:
        """Let a stranger take a lock, if it is free, for a long time."""
        stranger = object()
        self.locks.setdefault(key, stranger)
        self.kernel.after(duration_s, lambda: self._release(stranger))

    def restart(self, duration_s: float) -> None:
        """Stop at once: what was not committed is rolled back, every client gets an error."""
        self.is_down = True
        self.boot += 1
        boot = self.boot
        cut, self._running, self._waiting = self._running + self._waiting, [], []
        self.locks.clear()
        for transaction in cut:
            self._answer(transaction, None)
        self.kernel.after(duration_s, lambda: self._up(boot))

    def _up(self, boot: int) -> None:
        if boot == self.boot:
            self.is_down = False

    def slow_commits(self, delay_s_max: float, failure_rate: float, duration_s: float) -> None:
        self.commit_delay_s_max, self.commit_failure_rate = delay_s_max, failure_rate
        self.kernel.after(duration_s, self._quick_commits)

    def _quick_commits(self) -> None:
        self.commit_delay_s_max, self.commit_failure_rate = 0.003, 0.0

    def slow_replies(self, delay_s_max: float, duration_s: float) -> None:
        self.reply_delay_s_max = delay_s_max
        self.kernel.after(duration_s, self._quick_replies)

    def _quick_replies(self) -> None:
        self.reply_delay_s_max = 0.003
