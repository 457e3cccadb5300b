"""One attempt of a capability in this process: what came of it, and how to go on from there."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from foundation.clock import SystemClock
from node_agent.adapters.outbound.process_host.inline import run_inline
from node_agent.adapters.outbound.transfers import HttpTransfers, TransferConfig
from node_agent.core.execution.ports import Failed, Outcome, Stopped, Succeeded, WorkFailure
from node_agent.sdk.context import WorkCancelledError
from node_agent.sdk.definition import Capability
from node_agent.testing.orders import local_order
from node_agent.testing.services import StagedServices

InputFile = bytes | str | Path
"""The content of an input, or where its file is."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one attempt did; `artifacts` are files by their paths in the collection."""

    capability: Capability
    outcome: Outcome
    artifacts: Mapping[str, Path]
    progress: Sequence[tuple[int, str]]
    checkpoints: Sequence[dict[str, Any]]
    folder: Path

    @property
    def status(self) -> str:
        """SUCCEEDED, FAILED or STOPPED."""
        return {Succeeded: "SUCCEEDED", Failed: "FAILED", Stopped: "STOPPED"}[type(self.outcome)]

    @property
    def output(self) -> Any:  # noqa: ANN401 - the capability's own output model
        """The output as the capability's model; AssertionError with the reason if it has none."""
        if isinstance(self.outcome, Succeeded):
            return self.capability.output_model.model_validate_json(self.outcome.output_json)
        told = f": {self.outcome.failure}" if isinstance(self.outcome, Failed) else ""
        raise AssertionError(f"{self.capability.name} has no output, it {self.status}{told}")

    @property
    def failure(self) -> WorkFailure:
        """Why it failed; AssertionError if it did not."""
        if isinstance(self.outcome, Failed):
            return self.outcome.failure
        raise AssertionError(f"{self.capability.name} did not fail, it {self.status}")


class RunCapability(Protocol):
    """What the fixture `run_capability` is: runs one attempt to its end.

    `given` is the input as a model or a document; `inputs` are the resources by the references
    that it names. With `stop_after_checkpoint=n` the attempt is stopped right after its n-th
    checkpoint; `resume` goes on with such an attempt: same folder, last checkpoint.
    """

    def __call__(
        self,
        capability: Capability,
        given: BaseModel | Mapping[str, Any],
        *,
        inputs: Mapping[str, InputFile] | None = None,
        stop_after_checkpoint: int | None = None,
        resume: Trial | None = None,
    ) -> Trial:
        """Run it."""
        ...


def run_capability(
    folder: Path,
    capability: Capability,
    given: BaseModel | Mapping[str, Any],
    *,
    inputs: Mapping[str, InputFile] | None = None,
    stop_after_checkpoint: int | None = None,
    resume: Trial | None = None,
) -> Trial:
    """Run `try_capability` in an event loop of its own."""
    return asyncio.run(
        try_capability(
            folder,
            capability,
            given,
            inputs=inputs,
            stop_after_checkpoint=stop_after_checkpoint,
            resume=resume,
        )
    )


async def try_capability(
    folder: Path,
    capability: Capability,
    given: BaseModel | Mapping[str, Any],
    *,
    inputs: Mapping[str, InputFile] | None = None,
    stop_after_checkpoint: int | None = None,
    resume: Trial | None = None,
) -> Trial:
    """Run one attempt in the present event loop, with an empty `folder` for its files.

    See RunCapability for the arguments. Errors of the work are in the trial's outcome.
    """
    place = resume.folder if resume is not None else folder
    work_folder = place / "work"
    await asyncio.to_thread(work_folder.mkdir, parents=True, exist_ok=True)
    files = await asyncio.to_thread(_files, place / "given", inputs or {})
    stop = asyncio.Event()

    async def after_call(name: str) -> None:
        if name == "checkpoint" and len(services.checkpoints) == stop_after_checkpoint:
            stop.set()
            raise WorkCancelledError

    services = StagedServices(files, place / "artifacts", after_call)
    order = local_order(
        capability,
        given.model_dump_json() if isinstance(given, BaseModel) else json.dumps(given),
        work_folder,
        checkpoint_json=_last_checkpoint(resume),
    )
    async with HttpTransfers(TransferConfig(file_grants=True)) as transfers:
        outcome = await run_inline(capability, order, (services, transfers, SystemClock()), [stop])
    made = {path: place / "artifacts" / path for path in sorted(services.artifacts)}
    return Trial(
        capability,
        outcome,
        made if resume is None else {**resume.artifacts, **made},
        tuple(services.progress_told),
        tuple(services.checkpoint_documents),
        place,
    )


def _last_checkpoint(resume: Trial | None) -> str | None:
    if resume is None or not resume.checkpoints:
        return None
    return json.dumps(resume.checkpoints[-1])


def _files(folder: Path, inputs: Mapping[str, InputFile]) -> dict[str, Path]:
    """Every input as a file."""
    folder.mkdir(exist_ok=True)
    files: dict[str, Path] = {}
    for number, (reference, given) in enumerate(inputs.items()):
        if isinstance(given, Path):
            files[reference] = given
            continue
        file = folder / str(number)
        file.write_bytes(given.encode() if isinstance(given, str) else given)
        files[reference] = file
    return files
