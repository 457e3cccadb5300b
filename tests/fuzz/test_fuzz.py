"""A fixed number of mutations of each target; `make fuzz` tries more, and other ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import OK

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("target", "count"), [("zip", 1_500), ("image", 1_000)])
def test_each_mutation_ends_in_success_or_a_typed_refusal(target: str, count: int) -> None:
    """In a process of its own, under limits of memory and time that end it."""
    command = [sys.executable, "-m", "tests.fuzz", target, "--count", str(count), "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    outcomes = json.loads(done.stdout)["outcomes"]
    assert sum(outcomes.values()) == count
    assert 0 < outcomes[OK] < count, "a fuzzer that reaches one side only tests nothing"
    assert len(outcomes) > 3


def test_mutations_are_repeatable() -> None:
    """The same number gives the same bytes, so that a finding can be looked at again."""
    seeds = [b"PK" * 50, b"abc" * 30]
    assert [mutated(seeds, 1, n) for n in range(50)] == [mutated(seeds, 1, n) for n in range(50)]
    assert len({mutated(seeds, 1, n) for n in range(50)}) > 40
