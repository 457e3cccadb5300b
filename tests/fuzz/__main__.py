"""`python -m tests.fuzz zip|image`: tries mutations, and keeps the first that is a finding."""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS

_MIB: Final = 1 << 20
# What may be mapped beyond what the libraries have, and resident in all.
DATA_BYTES_MAX: Final = 384 * _MIB
RESIDENT_BYTES_MAX: Final = 512 * _MIB
# Of one mutation: the kernel ends the process after so many seconds of a core.
CPU_S_MAX: Final = 10.0
FINDING: Final = 3


def main() -> int:
    """Run; 0: no finding, 3: one, whose file is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=tuple(TARGETS))
    parser.add_argument("--count", type=int, default=10_000, help="mutations to try")
    parser.add_argument("--seed", type=int, default=None, help="without it, a new one")
    parser.add_argument("--only", type=int, default=None, help="try this number alone")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    numbers = range(given.count) if given.only is None else [given.only]
    # A death leaves no word: then this file says at which mutation.
    at = Path(tempfile.gettempdir()) / f"fuzz-{given.target}-{seed}.at"
    outcomes: Counter[str] = Counter()
    target = TARGETS[given.target]()
    resource.setrlimit(resource.RLIMIT_DATA, (_status_bytes("VmData") + DATA_BYTES_MAX,) * 2)
    for number in numbers:
        at.write_text(f"{number}\n", encoding="ascii")
        data = mutated(target.seeds, seed, number)
        signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
        try:
            outcomes[target.run(data)] += 1
        except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
            return _found(given.target, seed, number, data)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    at.unlink()
    # Not getrusage: its peak is that of whoever started this process, if that was larger.
    resident_bytes = _status_bytes("VmHWM")
    document = {"target": given.target, "seed": seed, "resident_mib": resident_bytes // _MIB}
    sys.stdout.write(json.dumps({**document, "outcomes": outcomes}) + "\n")
    return 0 if resident_bytes <= RESIDENT_BYTES_MAX else FINDING


def _found(target: str, seed: int, number: int, data: bytes) -> int:
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    kept = Path(tempfile.gettempdir()) / f"fuzz-{target}-{seed}-{number}"
    kept.write_bytes(data)
    traceback.print_exc()
    again = f"python -m tests.fuzz {target} --seed {seed} --only {number}"
    sys.stderr.write(f"finding: {kept}; again: {again}\n")
    return FINDING


def _status_bytes(name: str) -> int:
    """What the kernel tells of this process: VmData is mapped as data, VmHWM the resident peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    (size_kib,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(size_kib) * 1024


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
