"""Credits never allow more attempts than there is room for, and none is lost."""

from hypothesis import given
from hypothesis import strategies as st

from node_agent.core.execution.credits import CreditLedger

STEPS = st.lists(st.sampled_from(["run", "end", "hello"]), max_size=60)


@given(st.integers(1, 8), st.integers(0, 12), STEPS)
def test_room_is_always_out_or_in_use(slot_count: int, held: int, steps: list[str]) -> None:
    """After each step, unfinished attempts and credits at the server fill the slots exactly."""
    ledger = CreditLedger(slot_count)
    unfinished, at_server = held, ledger.hello(held)
    for step in steps:
        if step == "hello":
            at_server = ledger.hello(unfinished)
        elif step == "run" and at_server:
            at_server -= 1
            unfinished += 1
            ledger.spent(1)
        elif step == "end" and unfinished:
            unfinished -= 1
            at_server += ledger.to_give(unfinished)
        assert at_server == max(slot_count - unfinished, 0)
