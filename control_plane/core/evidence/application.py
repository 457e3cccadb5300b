"""Evidence for one task, execution or order of the caller's."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from control_plane.core.errors import ControlPlaneError
from control_plane.core.evidence.domain import Ladder, LadderFacts, build_ladder
from control_plane.core.executions.queries import owner_of_view
from foundation.errors import InvalidArgumentError, NotFoundError
from foundation.ids import parse_id
from foundation.principals import Principal


class SubjectNotFoundError(ControlPlaneError, NotFoundError):
    """There is no such task, execution or reference, or it is another application's."""

    reason = "SUBJECT_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about; exactly one field is not empty."""

    task_id: str = ""
    execution_id: str = ""
    external_ref: str = ""


class EvidenceReader(Protocol):
    """Reads what the ladder is built from."""

    async def execution_of(self, subject: Subject, owner: str | None) -> str | None:
        """Name the execution that is meant: a task's current one; None if there is none."""
        ...

    async def facts(self, execution_id: str) -> LadderFacts:
        """Read every hop's facts."""
        ...

    async def database_time(self) -> datetime:
        """Tell the time by the database's clock."""
        ...


class Evidence:
    """Builds ladders."""

    def __init__(self, reader: EvidenceReader) -> None:
        self._reader = reader

    async def ladder(self, principal: Principal, subject: Subject) -> Ladder:
        """Return the ladder; SubjectNotFoundError."""
        owner = owner_of_view(principal)
        named = [one for one in (subject.task_id, subject.execution_id) if one]
        for one in named:
            parse_id(one, "task_id" if one == subject.task_id else "execution_id")
        if not named and not subject.external_ref:
            raise InvalidArgumentError.of_field(
                "subject", "is empty: name a task_id, an execution_id or an external_ref"
            )
        execution_id = await self._reader.execution_of(subject, owner)
        if execution_id is None:
            wanted = subject.task_id or subject.execution_id or subject.external_ref
            raise SubjectNotFoundError(f"nothing is known of {wanted!r}: check the id")
        return build_ladder(await self._reader.facts(execution_id))

    async def database_time(self) -> datetime:
        """Tell the time by the database's clock."""
        return await self._reader.database_time()


def bundle_json(ladder: Ladder) -> str:
    """Return the ladder as canonical JSON, as it is exported and signed."""
    document = {
        "task_id": ladder.task_id,
        "execution_id": ladder.execution_id,
        "verdict": ladder.verdict,
        "rungs": [
            {
                "hop": rung.hop,
                "title": rung.title,
                "state": rung.state.value,
                "identity": rung.identity,
                "store": rung.store,
                "location": rung.location,
                "record": rung.record,
                "durable_time": rung.durable_at.isoformat() if rung.durable_at else "",
                "actor": rung.actor,
                "summary": rung.summary,
                "disturbances": [
                    {
                        "kind": one.kind,
                        "description": one.description,
                        "occur_time": one.occurred_at.isoformat() if one.occurred_at else "",
                    }
                    for one in rung.disturbances
                ],
            }
            for rung in ladder.rungs
        ],
    }
    return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
