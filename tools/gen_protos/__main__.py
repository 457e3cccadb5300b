"""Command line of the generator: `python -m tools.gen_protos [--check]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tools.gen_protos.freshness import differences
from tools.gen_protos.generate import GenerationError, generate

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Generates, or with --check compares; returns the exit status (1: stale or impossible)."""
    parser = argparse.ArgumentParser(prog="python -m tools.gen_protos", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail on a difference")
    parser.add_argument(
        "--root", type=Path, default=_ROOT, help="the repository (default: this one)"
    )
    options = parser.parse_args(arguments)
    protos_dir = options.root / "protos"
    try:
        if options.check:
            return _check(protos_dir)
        written = generate(protos_dir, protos_dir / "gen")
    except GenerationError as error:
        sys.stderr.write(f"gen_protos: {error}\n")
        return 1
    sys.stdout.write(f"gen_protos: {len(written)} files in {protos_dir / 'gen'}\n")
    return 0


def _check(protos_dir: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="gen_protos_") as fresh:
        generate(protos_dir, Path(fresh))
        stale = differences(expected_dir=Path(fresh), actual_dir=protos_dir / "gen")
    for line in stale:
        sys.stderr.write(f"gen_protos: {line}\n")
    if stale:
        sys.stderr.write("gen_protos: the generated code is stale; run `make protos` and commit\n")
        return 1
    sys.stdout.write("gen_protos: the generated code is fresh\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
