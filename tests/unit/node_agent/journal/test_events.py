"""The JSON of stored events gives back what was stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.core.execution.ports import UploadedArtifact, Usage, WorkFailure
from node_agent.core.journal.domain import RunSpec
from node_agent.core.journal.events import (
    ArtifactsReported,
    WorkFailed,
    WorkStopped,
    WorkSucceeded,
    fact_from_json,
    fact_to_json,
)
from node_agent.core.session.lease_clock import AttemptId

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
COUNT = st.integers(0, 2**60)
USAGES = st.builds(Usage, COUNT, COUNT, COUNT)
FAILURES = st.builds(
    WorkFailure, TEXT, TEXT, st.booleans(), st.none() | st.floats(0, 1e6), st.booleans(), TEXT
)
ARTIFACTS = st.builds(UploadedArtifact, TEXT, TEXT, COUNT, st.binary(max_size=32), TEXT)
FACTS = (
    st.builds(WorkSucceeded, TEXT, COUNT, TEXT, USAGES)
    | st.builds(WorkFailed, FAILURES, USAGES)
    | st.builds(WorkStopped, TEXT, USAGES)
    | st.builds(ArtifactsReported, st.lists(ARTIFACTS, max_size=3).map(tuple))
)


@given(FACTS)
def test_facts_survive_the_journal(
    fact: WorkSucceeded | WorkFailed | WorkStopped | ArtifactsReported,
) -> None:
    """Every kind, with any text and number."""
    assert fact_from_json(fact_to_json(fact)) == fact


@given(TEXT, TEXT, st.floats(0, 1e9), COUNT)
def test_run_specs_survive_the_journal(
    text: str, input_json: str, timeout_s: float, memory_bytes: int
) -> None:
    """Every field, and fields of a newer version are ignored."""
    spec = RunSpec(
        AttemptId(text), 3, text, text, text, -1, 2, text, text, input_json, timeout_s, 0.5,
        memory_bytes, text,
    )  # fmt: skip
    assert RunSpec.from_json(spec.to_json()) == spec
    newer = spec.to_json().replace("{", '{"new_field":1,', 1)
    assert RunSpec.from_json(newer) == spec


def test_an_event_of_a_newer_version_is_told_apart() -> None:
    """A downgraded agent must not send rubbish."""
    with pytest.raises(ValueError, match="PAUSED"):
        fact_from_json('{"kind":"PAUSED"}')
