"""ARCHITECTURE.md names what is there, and says what is missing."""

import re

from tests.unit.docs.documents import ROOT, inline_code, paths_named, text_of
from tests.unit.docs.served import not_offered, services

_ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
_HOPS = 10


def _section(title: str) -> str:
    found = re.search(
        rf"^## {title}\n(.*?)(?=^## |\Z)", text_of(_ARCHITECTURE), re.MULTILINE | re.DOTALL
    )
    assert found, f"ARCHITECTURE.md has no section {title!r}"
    return found[1]


def test_every_path_exists() -> None:
    """A file that was moved or deleted is not sent for by the tour."""
    named = paths_named(text_of(_ARCHITECTURE))
    assert len(named) > _HOPS
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_glossary_comes_first() -> None:
    """Whoever reads on knows the words."""
    titles = re.findall(r"^## (.*)$", text_of(_ARCHITECTURE), re.MULTILINE)
    assert titles[0] == "Words that mean more than one thing elsewhere"


def test_every_hop_names_files_and_what_is_durable() -> None:
    """Ten hops, each with code to open, its durable facts and what a death does."""
    hops = re.split(r"^### ", _section("Follow an order through the code"), flags=re.MULTILINE)[1:]
    assert [hop.partition(".")[0] for hop in hops] == [str(n + 1) for n in range(_HOPS)]
    for hop in hops:
        assert paths_named(hop), hop
        assert "*Durable:*" in hop, hop
        assert re.search(r"\*(Death|The child dies)", hop), hop


def test_every_loop_is_in_the_table() -> None:
    """A loop that is added to a process is added to the list of what runs by itself."""
    loops = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/adapters/*/loop_*.py")}
    assert loops <= set(paths_named(_section("Loops and what wakes them")))


async def test_the_list_of_rpcs_that_are_not_offered_is_the_truth() -> None:
    """What the servicers leave out or refuse is listed, and nothing else is."""
    listed = {one for one in inline_code(_section("Not offered yet")) if one.startswith("tdp.")}
    assert listed == await not_offered()


def test_every_service_of_the_contracts_is_looked_at() -> None:
    """The test above would be empty if it found no services."""
    assert len(services()) >= len(list((ROOT / "protos").rglob("*_service.proto")))
