"""A process that stores batches of four until it is killed, and tells each stored watermark."""

import asyncio
import sys
from pathlib import Path

from node_agent.adapters.outbound.sqlite.journal import SqliteJournal
from node_agent.core.journal.domain import FinishAttempt, MarkSequence
from tests.integration.node_agent.core.builders import event, keep, opened, spec

BATCH = 4


async def main(folder: Path) -> None:
    journal = SqliteJournal(await opened(folder))
    sequence = 0
    while True:
        runs = [spec() for _ in range(BATCH)]
        writes = [keep(run, sequence + number) for number, run in enumerate(runs, start=1)]
        results = [FinishAttempt(event(run), waits_for_earlier=False) for run in runs]
        sequence += BATCH
        await journal.apply([*writes, MarkSequence(sequence), *results])
        sys.stdout.write(f"{sequence}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
