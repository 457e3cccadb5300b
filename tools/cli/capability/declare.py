"""Loads capabilities in a process of its own and writes what they declare, or what is wrong."""

import dataclasses
import json
import sys

from foundation.errors import TdpError
from node_agent.sdk import load_capabilities


def main(references: list[str]) -> int:
    """Write what the references declare as JSON (status 0), or the problem (status 1)."""
    try:
        loaded = load_capabilities(references)
    except TdpError as error:
        sys.stdout.write(json.dumps({"reason": error.reason, "message": error.message}))
        return 1
    declared = [dataclasses.asdict(one.capability.declaration) for one in loaded.values()]
    sys.stdout.write(json.dumps(declared))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
