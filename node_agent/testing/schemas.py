"""Checks a document against a JSON Schema as the control plane will."""

import json
from collections.abc import Mapping
from typing import Any


def schema_problem(schema_json: str, document: str | Mapping[str, Any]) -> str:
    """Return how a document (a mapping, or JSON text) breaks the schema, empty if it does not."""
    # Only the command line's extra brings it.
    import jsonschema_rs

    value = json.loads(document) if isinstance(document, str) else dict(document)
    try:
        jsonschema_rs.validate(json.loads(schema_json), value)
    except jsonschema_rs.ValidationError as error:
        path = "/".join(map(str, error.instance_path))
        return f"{path or 'the document'}: {error.message}"
    return ""
