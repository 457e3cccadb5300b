"""Run many seeds from the command line: python -m tests.simulation.leases --seeds 5000."""

import argparse
import sys

from tests.simulation.leases.mutants import FOCUS, Mutant
from tests.simulation.leases.world import World


def main() -> int:
    """Run the seeds; print the first violations with the faults before them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.leases")
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--mutant", type=Mutant, default=Mutant.NONE, choices=list(Mutant))
    parser.add_argument("--stop-after", type=int, default=5, help="violating seeds to show")
    arguments = parser.parse_args()
    bad = events = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = World(seed, arguments.mutant, FOCUS.get(arguments.mutant, ())).run()
        events += outcome.events
        if outcome.violations:
            bad += 1
            sys.stdout.write(f"seed {seed}: {outcome.violations[0]}\n")
            sys.stdout.writelines(f"    {line}\n" for line in outcome.faults)
            if bad >= arguments.stop_after:
                break
    sys.stdout.write(f"{bad} violating seeds, {events} events\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
