"""Declaring capabilities: what is taken from the function, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from node_agent.sdk import (
    BlockingContext,
    Capability,
    CapabilityDefinitionError,
    Context,
    capability,
    installed_references,
    load_capabilities,
)


class Given(BaseModel):
    text: str = Field(min_length=1)
    count: int = 3


class Made(BaseModel):
    total: int


@capability("test.sample", version="2", supports_resume=True)
async def sample(ctx: Context, given: Given) -> Made:
    """Counts."""
    del ctx
    return Made(total=given.count)


not_a_capability = 3


@capability("test.sample", version="2")
def twin(ctx: BlockingContext, given: Given) -> Made:
    """Has the name and version of another."""
    del ctx
    return Made(total=given.count)


def test_schemas_come_from_the_models() -> None:
    """Input and output are declared as canonical JSON Schema 2020-12."""
    declared = sample.declaration
    schema = json.loads(declared.input_schema_json)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["text"]
    assert schema["properties"]["text"]["minLength"] == 1
    assert json.loads(declared.output_schema_json)["required"] == ["total"]
    assert (declared.name, declared.version, declared.inline, declared.supports_resume) == (
        "test.sample",
        "2",
        False,
        True,
    )
    canonical = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    assert declared.input_schema_json == canonical


async def _no_models(ctx: Context, given: str) -> Made:
    raise NotImplementedError


async def _no_output(ctx: Context, given: Given): ...  # type: ignore[no-untyped-def]  # noqa: ANN202 - the mistake


async def _one_parameter(given: Given) -> Made:
    raise NotImplementedError


async def _wrong_context(ctx: BlockingContext, given: Given) -> Made:
    raise NotImplementedError


def _sync_with_async_context(ctx: Context, given: Given) -> Made:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_no_models, "the input of test.bad"),
        (_no_output, "the output of test.bad"),
        (_one_parameter, "must take a context and an input"),
        (_wrong_context, "annotated as Context"),
        (_sync_with_async_context, "annotated as BlockingContext"),
    ],
)
def test_a_function_of_another_shape_is_refused(function: Callable[..., Any], words: str) -> None:
    """The message names the capability and what its function must look like."""
    with pytest.raises(CapabilityDefinitionError, match=words):
        capability("test.bad", version="1")(function)


@pytest.mark.parametrize(
    ("name", "version", "mode"),
    [("Test", "1", "process"), ("a..b", "1", "process"), ("a.b", "", "process"), ("a.b", "1", "x")],
)
def test_odd_names_versions_and_modes_are_refused(
    name: str,
    version: str,
    mode: Any,  # noqa: ANN401 - also wrong ones
) -> None:
    """They would not fit the contract, or mean nothing."""
    with pytest.raises(CapabilityDefinitionError):
        capability(name, version=version, mode=mode)


def test_inline_work_must_be_async() -> None:
    """A synchronous function would block the agent's loop."""
    with pytest.raises(CapabilityDefinitionError, match="would block the agent"):
        capability("test.bad", version="1", mode="inline")(twin.function)


def test_the_installed_capabilities_are_found() -> None:
    """The entry points of this distribution name three capabilities, and all can be loaded."""
    loaded = load_capabilities(installed_references())
    assert {("archive.clean", "1"), ("image.watermark", "1"), ("noop", "1")} <= loaded.keys()
    assert all(isinstance(one.capability, Capability) for one in loaded.values())


BROKEN = {
    "raises": ("x = 1\n\nx.nothing\n", r"AttributeError: .* at .*raises\.py:3; repair"),
    "syntax": ("def f(:\n", r"SyntaxError: .* at .*syntax\.py:1; repair"),
    "missing": ("import json\nimport no_such_package_x\n", r"ModuleNotFoundError.*missing\.py:2;"),
    "declared": (
        """from pydantic import BaseModel
from node_agent.sdk import Context, capability


class Made(BaseModel):
    pass


@capability("a.b", version="1")
async def work(ctx: Context, given: str) -> Made:
    return Made()
""",
        r"the input of a\.b is annotated .* \(declared:capability at .*declared\.py:9",
    ),
    "late": (
        """from node_agent.sdk import Context, capability


@capability("a.b", version="1")
async def work(ctx: Context, given: "Given") -> "Made":
    return Made()
""",
        r"the annotations of a\.b cannot be read: name 'Given'.*late\.py:4",
    ),
}


@pytest.mark.parametrize("module", BROKEN)
def test_a_broken_module_is_named_with_its_line(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an author's module raises at import: the message has file, line and advice."""
    code, expected = BROKEN[module]
    (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CapabilityDefinitionError) as refused:
        load_capabilities([f"{module}:capability"])
    assert re.search(expected, refused.value.message), refused.value.message


@pytest.mark.parametrize(
    ("references", "words"),
    [
        (["no.such.module:capability"], "cannot be loaded"),
        ([f"{__name__}:nothing"], "cannot be loaded"),
        ([f"{__name__}:not_a_capability"], "must be made by @capability"),
        ([f"{__name__}:sample", f"{__name__}:twin"], "is declared by"),
    ],
)
def test_broken_references_are_named(references: list[str], words: str) -> None:
    """A capability that is missing, is none, or is there twice stops the start, by its name."""
    with pytest.raises(CapabilityDefinitionError, match=words):
        load_capabilities(references)
