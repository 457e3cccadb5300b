"""Command line of the style check: `python -m tools.tidy`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.tidy.review import review

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Prints each breach of the style guide; returns the exit status (1: there is one)."""
    parser = argparse.ArgumentParser(prog="python -m tools.tidy", description=__doc__)
    parser.add_argument("--root", type=Path, default=_ROOT, help="the repository; default: this")
    findings = review(parser.parse_args(arguments).root)
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    sys.stdout.write(f"tidy: {len(findings)} findings\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
