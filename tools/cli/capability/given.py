"""The input of a capability from the command line: a document, fields, and files by reference."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from foundation.errors import InvalidArgumentError
from node_agent.sdk import Capability
from node_agent.testing.rehearsal import Given

COLLECTION: Final = "local"
_COLLECTION_FIELD: Final = "collection_ref"
_REFERENCE_ENDING: Final = "_ref"


@dataclass(frozen=True, slots=True)
class InputOptions:
    """What was typed: a JSON file, key=value pairs, one file, and field=path pairs."""

    document: Path | None = None
    parameters: Sequence[str] = ()
    input_file: Path | None = None
    files: Sequence[str] = field(default=())


def given_input(capability: Capability, options: InputOptions) -> Given:
    """Make the input document and the files that it refers to.

    Raises InvalidArgumentError for what cannot be read or has no place in the input.
    """
    document = _base(options.document) | _parameters(capability, options.parameters)
    files: dict[str, Path] = {}
    for key, path in _files(capability, options).items():
        document[key] = path.name if files.get(path.name, path) == path else f"{key}/{path.name}"
        files[document[key]] = path
    if _COLLECTION_FIELD in capability.input_model.model_fields:
        document.setdefault(_COLLECTION_FIELD, COLLECTION)
    return Given(document, files)


def _base(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError.of_field("--document", f"{file}: {error}") from None
    if not isinstance(document, dict):
        raise InvalidArgumentError.of_field("--document", f"{file} holds no JSON object")
    return document


def _parameters(capability: Capability, parameters: Sequence[str]) -> dict[str, Any]:
    """The document from key=value pairs: JSON, or text where the field is text."""
    schema = json.loads(capability.declaration.input_schema_json).get("properties", {})
    document: dict[str, Any] = {}
    for parameter in parameters:
        key, text = _pair("--param", parameter)
        is_text = schema.get(key, {}).get("type") == "string"
        document[key] = text if is_text else _value(text)
    return document


def _files(capability: Capability, options: InputOptions) -> dict[str, Path]:
    """The files by the fields that refer to them."""
    found: dict[str, Path] = {}
    if options.input_file is not None:
        found[_only_reference(capability)] = options.input_file
    for pair in options.files:
        key, text = _pair("--file", pair)
        if key not in capability.input_model.model_fields:
            raise InvalidArgumentError.of_field("--file", f"{capability.name} has no field {key!r}")
        if not Path(text).is_file():
            raise InvalidArgumentError.of_field("--file", f"{text} is no file")
        found[key] = Path(text)
    return found


def _only_reference(capability: Capability) -> str:
    names = [
        name
        for name in capability.input_model.model_fields
        if name.endswith(_REFERENCE_ENDING) and name != _COLLECTION_FIELD
    ]
    if len(names) != 1:
        raise InvalidArgumentError.of_field(
            "--input",
            f"{capability.name} has {len(names)} fields for a file: {', '.join(names) or '(none)'};"
            " use --file FIELD=PATH",
        )
    return names[0]


def _pair(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise InvalidArgumentError.of_field(option, f"{text!r} is not key=value")
    return key, value


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
