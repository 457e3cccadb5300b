"""Each ZIP of the case collection has exactly the outcome that cases.json states."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from node_agent.capabilities.archive_clean import ArchiveRefusedError
from tests.cases.builders import zip_recipes
from tests.unit.node_agent.archive_clean.cleaning import Cleaned, Workshop

_CASES = Path(__file__).parents[3] / "cases"
_ALL = json.loads((_CASES / "cases.json").read_text(encoding="utf-8"))
_ZIPS = [case for case in _ALL if case["file"].startswith("zip/")]


def _bytes(case: dict[str, Any]) -> bytes:
    if "recipe" not in case:
        return _CASES.joinpath(str(case["file"])).read_bytes()
    made = getattr(zip_recipes, case["recipe"]["call"])()
    assert isinstance(made, bytes)
    return made


def _names_of(expect: dict[str, Any], case: dict[str, Any]) -> list[str]:
    if case.get("recipe", {}).get("call") == "ten_thousand_entries":
        return zip_recipes.many_names(10_000)
    names: list[str] = expect["kept"]
    return names


def _outcome(workshop: Workshop, data: bytes) -> Cleaned | ArchiveRefusedError:
    try:
        return workshop.clean(data)
    except ArchiveRefusedError as refused:
        return refused


@pytest.mark.parametrize("case", _ZIPS, ids=[case["file"] for case in _ZIPS])
def test_the_case_has_its_outcome(case: dict[str, Any], workshop: Workshop) -> None:
    """Kept and removed names, or the reason of the refusal, are those of cases.json."""
    expect, outcome = case["expect"], _outcome(workshop, _bytes(case))
    if expect["outcome"] == "refused":
        assert isinstance(outcome, ArchiveRefusedError)
        assert outcome.reason in {expect["reason"], *expect.get("accept_also", [])}
        return
    assert isinstance(outcome, Cleaned), outcome
    assert outcome.kept == _names_of(expect, case)
    assert outcome.removed == {one["name"]: one["reason"] for one in expect["removed"]}
    with zipfile.ZipFile(io.BytesIO(outcome.data)) as reader:
        assert reader.namelist() == outcome.kept
        assert reader.testzip() is None


def test_the_collection_is_all_here() -> None:
    """No case has lost its file, and no file its case."""
    kept = {case["file"] for case in _ZIPS if "recipe" not in case}
    assert kept == {f"zip/{file.name}" for file in (_CASES / "zip").iterdir()}
