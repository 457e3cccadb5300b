"""The decorator that makes a function a capability, with its schemas."""

import inspect
import json
import re
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel

from foundation.canonical_json import JsonLimits, canonical_json
from foundation.errors import InvalidArgumentError
from node_agent.core.execution.ports import CapabilityDeclaration
from node_agent.sdk.context import BlockingContext, Context
from node_agent.sdk.errors import CapabilityDefinitionError

Mode = Literal["process", "inline"]
Work = Callable[[Any, Any], BaseModel] | Callable[[Any, Any], Awaitable[BaseModel]]

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCHEMA_LIMITS: Final = JsonLimits(size_bytes_max=64 * 1024)
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_CHARACTERS_MAX = 200
_PARAMETER_COUNT = 2


@dataclass(frozen=True, slots=True)
class Capability:
    """A function that does one kind of work, and all that is declared of it.

    A synchronous function runs in a thread and is given a `BlockingContext`; an asynchronous
    one is given a `Context`. With `supports_resume` an attempt goes on after a restart of the
    agent, with the last checkpoint; without it, the attempt fails and the step is retried.
    """

    name: str
    version: str
    mode: Mode
    supports_resume: bool
    function: Work
    input_model: type[BaseModel]
    output_model: type[BaseModel]
    declaration: CapabilityDeclaration

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)


def capability(
    name: str, *, version: str, mode: Mode = "process", supports_resume: bool = False
) -> Callable[[Work], Capability]:
    """Declare the function below as a capability: `(ctx, input) -> output`, models of pydantic.

    `name` is dotted lower case (`image.watermark`), `version` is exact, never a range. Mode
    `process` runs it in a child process; `inline` in the agent's event loop, for work that
    takes a moment and never blocks.

    Raises:
        CapabilityDefinitionError: name, version, mode or the function's signature is wrong.
    """
    _check_names(name, version, mode)

    def declare(function: Work) -> Capability:
        input_model, output_model = _models(name, function, mode)
        declaration = CapabilityDeclaration(
            name=name,
            version=version,
            input_schema_json=_schema(name, input_model, "validation"),
            output_schema_json=_schema(name, output_model, "serialization"),
            inline=mode == "inline",
            supports_resume=supports_resume,
        )
        return Capability(
            name, version, mode, supports_resume, function, input_model, output_model, declaration
        )

    return declare


def _check_names(name: str, version: str, mode: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS_MAX:
        raise CapabilityDefinitionError(
            f"capability name {name!r} must be dotted lower-case words, such as image.watermark"
        )
    if not _VERSION.fullmatch(version):
        raise CapabilityDefinitionError(
            f"version {version!r} of {name} must be 1 to 64 letters, digits, dots or dashes"
        )
    if mode not in typing.get_args(Mode):
        raise CapabilityDefinitionError(f"mode {mode!r} of {name} must be process or inline")


def _models(name: str, function: Work, mode: Mode) -> tuple[type[BaseModel], type[BaseModel]]:
    parameters = list(inspect.signature(function).parameters)
    hints = _hints(name, function)
    if len(parameters) != _PARAMETER_COUNT:
        raise CapabilityDefinitionError(
            f"the function of {name} takes {parameters}; it must take a context and an input"
        )
    is_async = inspect.iscoroutinefunction(function)
    if mode == "inline" and not is_async:
        raise CapabilityDefinitionError(
            f"{name} is inline and not async: it would block the agent; use mode='process'"
        )
    expected = Context if is_async else BlockingContext
    if hints.get(parameters[0], expected) is not expected:
        raise CapabilityDefinitionError(
            f"the context of {name} must be annotated as {expected.__name__},"
            f" since its function is {'async' if is_async else 'sync'}"
        )
    return (
        _model(name, "input", hints.get(parameters[1])),
        _model(name, "output", hints.get("return")),
    )


def _hints(name: str, function: Work) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise CapabilityDefinitionError(
            f"the annotations of {name} cannot be read: {error}; import the context and define"
            " the models at the top of the module"
        ) from error


def _model(name: str, what: str, hint: object) -> type[BaseModel]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    raise CapabilityDefinitionError(
        f"the {what} of {name} is annotated as {hint!r}; it must be a pydantic model"
    )


def _schema(name: str, model: type[BaseModel], mode: Literal["validation", "serialization"]) -> str:
    schema = {"$schema": SCHEMA_DIALECT, **model.model_json_schema(mode=mode)}
    try:
        return canonical_json(
            json.dumps(schema), field=f"{name}.{model.__name__}", limits=_SCHEMA_LIMITS
        )
    except InvalidArgumentError as error:
        raise CapabilityDefinitionError(f"the schema of {name}: {error.message}") from error
