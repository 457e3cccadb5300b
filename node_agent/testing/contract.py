"""What every capability owes the platform, tried on one input: `check_capability`.

An attempt may be delivered twice, stopped or killed at any point, and run again elsewhere; its
result must be the same each time, and a refusal must be the same refusal.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from node_agent.core.execution.ports import Failed, Stopped, Succeeded
from node_agent.sdk.discovery import LoadedCapability
from node_agent.sdk.whereabouts import place_of_function
from node_agent.testing.damages import damaged
from node_agent.testing.rehearsal import (
    STOP_GRACE_S,
    Blow,
    Disturbance,
    Given,
    Performance,
    Place,
    Stage,
)
from node_agent.testing.schemas import schema_problem

POINTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is owed, and whether it was kept; None if it could not be tried."""

    name: str
    owed: str
    passed: bool | None
    told: str


@dataclass(frozen=True, slots=True)
class ContractOptions:
    """How much is tried: at how many points work is stopped and killed.

    `bytes_may_differ` leaves it at the artifacts' paths, for formats with times in them.
    """

    points_max: int = POINTS_MAX
    bytes_may_differ: bool = False


async def check_capability(
    loaded: LoadedCapability, given: Given, folder: Path, options: ContractOptions
) -> AsyncIterator[Finding]:
    """Try the whole contract in child processes; a finding for each part, as it is known.

    `given` is an input that succeeds, `folder` is empty.
    """
    async with Stage(loaded, folder) as stage:
        contract = _Contract(stage, given, folder, options)
        yield await contract.completes()
        if contract.succeeded:
            yield contract.output_fits()
            yield await contract.delivered_twice()
            yield await contract.stopped()
            yield await contract.killed()
            yield contract.resumes()
        yield await contract.refuses()


class _Contract:
    """The parts of the contract, in the order in which they build on each other."""

    def __init__(self, stage: Stage, given: Given, folder: Path, options: ContractOptions) -> None:
        self._stage = stage
        self._given = given
        self._folder = folder
        self._options = options
        self._first = Performance(None, (), (), {}, 0.0)
        self._first_place = stage.place()
        self._where = place_of_function(stage.capability.function)
        self._restarted: list[str] = []
        self._resumed_count = 0

    @property
    def succeeded(self) -> bool:
        """Whether the first run did."""
        return isinstance(self._first.outcome, Succeeded)

    async def completes(self) -> Finding:
        owed = "The given input succeeds."
        self._first = await self._stage.perform(self._given, self._first_place)
        if not self.succeeded:
            told = f"{_told(self._first)}; give an input that this capability can work on"
            return Finding("completes", owed, passed=False, told=told)
        told = (
            f"{len(self._first.artifacts)} artifacts, {len(self._first.checkpoints)} checkpoints,"
            f" {self._duration_s():.2f} s"
        )
        return Finding("completes", owed, passed=True, told=told)

    def output_fits(self) -> Finding:
        owed = "Input and output fit their declared schemas."
        assert isinstance(self._first.outcome, Succeeded)
        declared = self._stage.capability.declaration
        for what, schema, document in (
            ("input", declared.input_schema_json, self._given.document),
            ("output", declared.output_schema_json, self._first.outcome.output_json),
        ):
            problem = schema_problem(schema, document)
            if problem:
                told = f"the {what} does not: {problem}; correct the {what} model ({self._where})"
                return Finding("schema", owed, passed=False, told=told)
        return Finding("schema", owed, passed=True, told="both do")

    async def delivered_twice(self) -> Finding:
        owed = "A second delivery of the same work has the same result."
        again = self._stage.place(self._first_place.output, attempt_number=2)
        performances = [("after the first", await self._stage.perform(self._given, again))]
        performances += await self._at_once()
        for when, performance in performances:
            problem = self._difference(performance)
            if problem:
                told = (
                    f"run again {when}, {problem}; derive everything from the input, not from time,"
                    f" chance or what is there ({self._where})"
                )
                return Finding("duplicate-delivery", owed, passed=False, told=told)
        told = "run again after the first, and twice at once"
        return Finding("duplicate-delivery", owed, passed=True, told=told)

    async def _at_once(self) -> list[tuple[str, Performance]]:
        output = self._folder / "both-out"
        places = [self._stage.place(output, attempt_number=number) for number in (1, 2)]
        async with asyncio.TaskGroup() as group:
            runs = [
                group.create_task(
                    self._stage.perform(self._given, place, aside=place is places[1]),
                    name=place.attempt,
                )
                for place in places
            ]
        return [("twice at once", run.result()) for run in runs]

    async def stopped(self) -> Finding:
        owed = "Asked to stop at any point, it stops by itself."
        blows = self._blows(Blow.STOP)
        for point, disturbance in blows:
            performance = await self._stage.perform(self._given, self._stage.place(), disturbance)
            problem = stop_problem(performance)
            if problem:
                told = f"asked to stop {point}, {problem} ({self._where})"
                return Finding("cancellation", owed, passed=False, told=told)
        return Finding("cancellation", owed, passed=True, told=f"stopped {_points(blows)}")

    async def killed(self) -> Finding:
        owed = "Killed at any point and run again, it has the same result."
        blows = self._blows(Blow.KILL)
        for point, disturbance in blows:
            place = self._stage.place()
            died = await self._stage.perform(self._given, place, disturbance)
            after, is_resumed = self._place_after(place, died)
            second = await self._stage.perform(self._given, after)
            problem = self._difference(second, before=died if is_resumed else None)
            if problem:
                how = "resumed" if is_resumed else "run again"
                told = f"killed {point} and {how}, {problem} ({self._where})"
                return Finding("recovery", owed, passed=False, told=told)
            self._note_resume(point, died, second, is_resumed=is_resumed)
        return Finding("recovery", owed, passed=True, told=f"killed {_points(blows)}")

    def _place_after(self, place: Place, died: Performance) -> tuple[Place, bool]:
        """Where the work goes on: in its place with its checkpoint, or as another attempt."""
        if self._stage.capability.supports_resume:
            checkpoint = died.checkpoints[-1] if died.checkpoints else None
            return replace(place, checkpoint_json=checkpoint), True
        return self._stage.place(place.output, attempt_number=2), False

    def _note_resume(
        self, point: str, died: Performance, second: Performance, *, is_resumed: bool
    ) -> None:
        if not is_resumed or not died.checkpoints:
            return
        self._resumed_count += 1
        total = len(self._first.checkpoints)
        if total > 1 and len(second.checkpoints) >= total:
            self._restarted.append(point)

    def resumes(self) -> Finding:
        owed = "Resumed, it goes on from its checkpoint."
        saves, supports = bool(self._first.checkpoints), self._stage.capability.supports_resume
        if not supports and saves:
            told = (
                "it saves checkpoints that are never used; declare supports_resume=True"
                f" ({self._where})"
            )
            return Finding("resume", owed, passed=False, told=told)
        if self._restarted:
            told = (
                f"killed {self._restarted[0]} and resumed, it saved every checkpoint again; begin"
                f" with ctx.last_checkpoint ({self._where})"
            )
            return Finding("resume", owed, passed=False, told=told)
        if not self._resumed_count:
            told = "it saves no checkpoint, so it begins again from the start"
            return Finding("resume", owed, passed=None, told=told)
        told = f"resumed {self._resumed_count} times, never from the start"
        return Finding("resume", owed, passed=True, told=told)

    async def refuses(self) -> Finding:
        owed = "Damaged input is refused for good, with the same reason each time."
        reasons: list[str] = []
        for what, given in damaged(self._given, self._stage.capability, self._folder):
            answers = [await self._stage.perform(given, self._stage.place()) for _ in range(2)]
            problem = _refusal_problem(answers)
            if problem:
                return Finding("refusal", owed, passed=False, told=f"with {what}, {problem}")
            outcome = answers[0].outcome
            verdict = outcome.failure.reason if isinstance(outcome, Failed) else "taken as it is"
            reasons.append(f"{what}: {verdict}")
        if not reasons:
            return Finding("refusal", owed, passed=None, told="there is nothing to damage")
        return Finding("refusal", owed, passed=True, told="; ".join(reasons))

    # --- What is compared. ---

    def _difference(self, performance: Performance, before: Performance | None = None) -> str:
        """How a run differs from the first; what a resumed one had uploaded before counts."""
        if not isinstance(performance.outcome, Succeeded):
            return f"it {_told(performance)}"
        assert isinstance(self._first.outcome, Succeeded)
        expected, found = self._first.outcome.output_json, performance.outcome.output_json
        if found != expected:
            return f"the output is {found} instead of {expected}"
        earlier = before.artifacts if before is not None else {}
        made = {**earlier, **performance.artifacts}
        if made.keys() != self._first.artifacts.keys():
            odd = sorted(made.keys() ^ self._first.artifacts.keys())
            return f"the artifacts differ by {', '.join(odd)}"
        other = [path for path, digest in made.items() if digest != self._first.artifacts[path]]
        if other and not self._options.bytes_may_differ:
            return f"the bytes of {', '.join(other)} differ"
        return ""

    def _blows(self, blow: Blow) -> list[tuple[str, Disturbance]]:
        """Points of the work: after calls to the agent, spread evenly, and halfway in time."""
        calls = self._first.calls
        chosen = _spread(len(calls), self._options.points_max)
        points = [
            (f"after call {number} ({calls[number - 1]})", Disturbance(blow, number))
            for number in chosen
        ]
        halfway = Disturbance(blow, after_s=self._duration_s() / 2)
        return [*points, ("halfway", halfway)]

    def _duration_s(self) -> float:
        outcome = self._first.outcome
        return outcome.usage.duration_ms / 1_000 if outcome is not None else 0.0


def stop_problem(performance: Performance) -> str:
    """Return what is wrong with how work ended that was asked to stop, empty if nothing is."""
    match performance.outcome:
        case Succeeded():
            return ""
        case Stopped() if performance.ending_s < STOP_GRACE_S:
            return ""
        case Stopped():
            return (
                f"it went on until it was killed after {STOP_GRACE_S:g} s; look at"
                " ctx.cancelled, or call ctx.raise_if_cancelled(), in every loop"
            )
        case _:
            return f"it {_told(performance)}; let cancellation pass, and clean up in finally"


def _spread(count: int, points_max: int) -> Sequence[int]:
    """At most `points_max` numbers of 1 to `count`, the first and the last among them."""
    if count <= points_max:
        return range(1, count + 1)
    step = (count - 1) / max(points_max - 1, 1)
    return sorted({1 + round(number * step) for number in range(points_max)})


def _points(blows: Sequence[Any]) -> str:
    return f"at {len(blows)} points"


def _told(performance: Performance) -> str:
    match performance.outcome:
        case Failed(failure):
            return f"failed with {failure.reason}: {failure.message}"
        case None:
            return "was killed"
        case outcome:
            return type(outcome).__name__.lower()


def _refusal_problem(answers: Sequence[Performance]) -> str:
    verdicts = []
    for answer in answers:
        outcome = answer.outcome
        if isinstance(outcome, Failed):
            failure = outcome.failure
            if failure.retryable:
                return (
                    f"it {_told(answer)}; this is tried again in vain: raise Fatal where the input"
                    " is at fault"
                )
            verdicts.append((failure.reason, failure.message))
        else:
            verdicts.append((_told(answer), ""))
    if verdicts[0] != verdicts[1]:
        return f"it answers {verdicts[0]} once and {verdicts[1]} then; say the same each time"
    return ""
