"""The lease rules hold in many seeded worlds, and each broken rule is found in a few."""

import os

import pytest

from tests.simulation.leases.mutants import FIRST_SEED, FOCUS, Mutant
from tests.simulation.leases.world import World

SEED_COUNT = int(os.environ.get("TDP_SIMULATION_SEEDS", "120"))
SEEDS_A_TEST = 20
MUTANT_SEEDS = 20


@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_A_TEST))
def test_the_rules_hold(first: int) -> None:
    """No seed breaks an invariant, and every step ends."""
    for seed in range(first, min(first + SEEDS_A_TEST, SEED_COUNT)):
        outcome = World(seed).run()
        assert not outcome.violations, outcome


@pytest.mark.parametrize("mutant", [mutant for mutant in Mutant if mutant is not Mutant.NONE])
def test_a_broken_rule_is_found(mutant: Mutant) -> None:
    """Each mutant breaks an invariant within a few seeds of faults that suit it."""
    first = FIRST_SEED.get(mutant, 0)
    outcomes = (
        World(seed, mutant, FOCUS[mutant]).run() for seed in range(first, first + MUTANT_SEEDS)
    )
    assert any(outcome.violations for outcome in outcomes), f"{mutant} was not found"


@pytest.mark.parametrize("mutant", list(FIRST_SEED))
def test_the_right_rule_survives_the_faults_that_show_the_broken_one(mutant: Mutant) -> None:
    """The very seeds that find a mutant pass with the rule in place."""
    outcome = World(FIRST_SEED[mutant], Mutant.NONE, FOCUS[mutant]).run()
    assert not outcome.violations, outcome


def test_a_seed_repeats_itself() -> None:
    """The same seed gives the same events, to the last one."""
    assert World(7).run() == World(7).run()
