"""Requirements as stored with their scheduling requests: JSON, without what is not asked for."""

import json
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.scheduling.domain import Requirement
from control_plane.core.workflows.domain import ANYWHERE, Affinity, Resources

_NOTHING_ASKED: Final = "{}"


def affinity_to_json(affinity: Affinity) -> str:
    """Return the affinity as JSON text; `{}` for a step that may run anywhere."""
    if affinity == ANYWHERE:
        return _NOTHING_ASKED
    document: dict[str, Any] = {
        "node_id": affinity.node_id,
        "group": affinity.group,
        "required_labels": dict(affinity.required_labels),
        "preferred_labels": dict(affinity.preferred_labels),
        "minimum_resources": {
            name: amount for name, amount in asdict(affinity.minimum_resources).items() if amount
        },
    }
    asked = {name: value for name, value in document.items() if value}
    return json.dumps(asked, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=4_096)
def requirement_from(capability: str, capability_version: str, affinity_json: str) -> Requirement:
    """Read back what was stored; requests that ask for the same share one object.

    Raises DocumentInvalidError for text that `affinity_to_json` did not write.
    """
    if affinity_json == _NOTHING_ASKED:
        return Requirement(capability, capability_version)
    try:
        document = json.loads(affinity_json)
        resources = Resources(**document.pop("minimum_resources", {}))
        affinity = Affinity(**document, minimum_resources=resources)
    except (ValueError, TypeError, AttributeError) as error:
        raise DocumentInvalidError(f"{affinity_json[:200]!r} is no affinity") from error
    return Requirement(capability, capability_version, affinity)
