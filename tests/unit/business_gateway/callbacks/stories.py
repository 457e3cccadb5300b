"""Stories that a platform may tell of one order, for the tests of the projection."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from business_gateway.core.callbacks.domain import Acceptance, EventId, PlatformEvent

ORDER_ID = "0190aaaa-0000-7000-8000-00000000000f"
TASK_ID = "0190aaaa-0000-7000-8000-000000000001"
_ENDS = ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED")
_TYPES = {"CREATED": "created", "RUNNING": "started", "": "noted"}


def execution_id(run: int, task_id: str = TASK_ID) -> str:
    return f"{task_id[:24]}{run:04d}{task_id[28:]}"


def event(run: int, sequence: int, status: str, progress: int = 0) -> PlatformEvent:
    """One event with ids that follow from its place."""
    return PlatformEvent(
        event_id=EventId(f"0190bbbb-0000-7000-8000-{run:06d}{sequence:06d}"),
        type=f"execution.{_TYPES.get(status, status.lower())}",
        task_id=TASK_ID,
        execution_id=execution_id(run),
        external_ref=ORDER_ID,
        run=run,
        sequence=sequence,
        platform_status=status,
        progress_percent=progress,
        envelope=f'{{"sequence":{sequence}}}',
    )


def acceptance(run: int) -> Acceptance:
    return Acceptance(TASK_ID, execution_id(run), run)


@dataclass(frozen=True)
class Story:
    """The events of an order's runs, in order; all runs but the last have ended."""

    events: tuple[PlatformEvent, ...]

    @property
    def run(self) -> int:
        return self.events[-1].run


@st.composite
def runs(draw: st.DrawFn, run: int, *, ended: bool) -> list[PlatformEvent]:
    """One legal run: created, perhaps started, progress, perhaps cancelled, perhaps an end."""
    told = [("CREATED", 0)]
    progress = 0
    if draw(st.booleans()):
        told.append(("RUNNING", 0))
        for risen in sorted(draw(st.lists(st.integers(1, 99), max_size=5))):
            progress = risen
            told.append((draw(st.sampled_from(["RUNNING", "RUNNING", ""])), progress))
    ends: tuple[str, ...] = _ENDS
    if draw(st.booleans()):
        told.append(("CANCELING", progress))
        ends = ("FAILED", "TIMED_OUT", "CANCELED")
    if ended:
        end = draw(st.sampled_from(ends))
        told.append((end, 100 if end == "SUCCEEDED" else progress))
    return [_told(run, number, *one) for number, one in enumerate(told, start=1)]


def _told(run: int, sequence: int, status: str, progress: int) -> PlatformEvent:
    made = event(run, sequence, status, progress)
    if status in {"FAILED", "TIMED_OUT"}:
        return replace(made, diagnosis=f"run {run} {status}", diagnosis_json='{"reason":"X"}')
    return replace(made, output_json='{"n":1.10}') if status == "SUCCEEDED" else made


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Up to three runs; the last one may still be under way."""
    count = draw(st.integers(1, 3))
    events: list[PlatformEvent] = []
    for run in range(1, count + 1):
        events += draw(runs(run, ended=run < count or draw(st.booleans())))
    return Story(tuple(events))
