"""How many RUN commands the server may still send: never more than there is room for."""


class CreditLedger:
    """Room is `slot_count` less the unfinished attempts less the credits that are out."""

    def __init__(self, slot_count: int) -> None:
        """Start without credits out."""
        self._slot_count = slot_count
        self._out_count = 0

    def hello(self, unfinished_count: int) -> int:
        """Return the credits of a new session; those of the old one are void."""
        self._out_count = max(self._slot_count - unfinished_count, 0)
        return self._out_count

    def spent(self, run_count: int) -> None:
        """Note RUN commands that came."""
        self._out_count = max(self._out_count - run_count, 0)

    def to_give(self, unfinished_count: int) -> int:
        """Return the credits to give now, and count them as out."""
        free = max(self._slot_count - unfinished_count - self._out_count, 0)
        self._out_count += free
        return free
