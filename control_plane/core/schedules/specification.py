"""A schedule's spec: as it was sent, checked, and as the JSON text that is stored."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Final

from control_plane.core.schedules.calendar import parse_calendar
from control_plane.core.schedules.domain import (
    CATCH_UP_DEFAULT,
    CATCH_UP_MAX,
    CATCH_UP_MIN,
    OverlapPolicy,
    ScheduledTask,
    ScheduleSpec,
)
from control_plane.core.schedules.errors import ScheduleInvalidError
from control_plane.limits import LABEL_COUNT_MAX
from foundation.canonical_json import FieldValue, JsonText, canonical_json

NAME_CHARS_MAX: Final = 100
DUE_TIME_KEY_CHARS_MAX: Final = 100
# The labels that each task gets besides.
OWN_LABEL_COUNT: Final = 2


@dataclass(frozen=True, slots=True)
class SpecAsSent:
    """The fields of a request; `overlap` is "" and `catch_up` None where they are not given."""

    cron: str
    time_zone: str
    overlap: str
    catch_up: timedelta | None
    task: ScheduledTask

    def fields(self) -> Mapping[str, FieldValue]:
        """Return what the request's hash covers."""
        task: dict[str, FieldValue] = {
            **asdict(self.task),
            "labels": dict(self.task.labels),
            "input_json": _document(self.task.input_json),
            "step_constraints_json": _document(self.task.step_constraints_json),
        }
        catch_up = self.catch_up
        return {
            "cron": self.cron,
            "time_zone": self.time_zone,
            "overlap": self.overlap,
            "catch_up_us": None if catch_up is None else catch_up // timedelta(microseconds=1),
            "task": task,
        }


def checked_name(name: str) -> str:
    """Return a schedule's name, trimmed; ScheduleInvalidError."""
    trimmed = name.strip()
    if not 1 <= len(trimmed) <= NAME_CHARS_MAX or "\x00" in trimmed:
        raise ScheduleInvalidError.of_field(
            "name", f"has {len(trimmed)} characters after trimming: send 1 to {NAME_CHARS_MAX}"
        )
    return trimmed


def checked_spec(sent: SpecAsSent, schedule_name: str) -> ScheduleSpec:
    """Check what CreateTask does not; an empty task name is the schedule's.

    Raises ScheduleInvalidError naming the field.
    """
    calendar = parse_calendar(sent.cron, sent.time_zone)
    if not sent.overlap:
        raise _wrong("overlap_policy", "is not given: choose one")
    catch_up = CATCH_UP_DEFAULT if sent.catch_up is None else sent.catch_up
    if not CATCH_UP_MIN <= catch_up <= CATCH_UP_MAX:
        raise _wrong("catch_up_window", f"is {catch_up}: send {CATCH_UP_MIN.seconds} s to 366 days")
    task = sent.task
    if len(task.labels) > LABEL_COUNT_MAX - OWN_LABEL_COUNT:
        most = LABEL_COUNT_MAX - OWN_LABEL_COUNT
        raise _wrong("task.labels", f"has {len(task.labels)} labels: at most {most}")
    _check_input(task)
    stored = replace(task, name=task.name.strip() or schedule_name)
    return ScheduleSpec(calendar, OverlapPolicy(sent.overlap), catch_up, stored)


def task_text(task: ScheduledTask) -> str:
    """Return the JSON text that a task description is stored as."""
    return json.dumps(_task_fields(task), ensure_ascii=False, sort_keys=True)


def task_of_text(text: str) -> ScheduledTask:
    """Return the task description that stored text holds."""
    return ScheduledTask(**json.loads(text))


def _check_input(task: ScheduledTask) -> None:
    document = canonical_json(task.input_json or "{}", field="spec.task.input_json")
    if not document.startswith("{"):
        raise _wrong("task.input_json", "is not an object")
    key = task.due_time_key
    if not key:
        return
    if len(key) > DUE_TIME_KEY_CHARS_MAX or "\x00" in key:
        raise _wrong("task.due_time_key", f"is over {DUE_TIME_KEY_CHARS_MAX} characters long")
    if key in json.loads(document):
        raise _wrong("task.due_time_key", f"{key!r} is in the input already: remove one of them")


def _task_fields(task: ScheduledTask) -> dict[str, object]:
    return {**asdict(task), "labels": dict(task.labels)}


def _document(text: str) -> JsonText | None:
    return JsonText(text) if text.strip() else None


def _wrong(field: str, description: str) -> ScheduleInvalidError:
    return ScheduleInvalidError.of_field(f"spec.{field}", description)
