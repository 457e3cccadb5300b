"""Which entries go: junk rules, options and their order of precedence."""

import pytest

from node_agent.capabilities.archive_clean import CleanOptions, CleanOptionsError
from node_agent.capabilities.archive_clean.globs import PATTERNS_MAX, Glob
from node_agent.capabilities.archive_clean.junk import junk_reason
from tests.cases.builders.zip_builder import archive, folder_entry, text_entry
from tests.unit.node_agent.archive_clean.cleaning import Workshop

_JUNK = {
    "MACOS_METADATA": [
        "Icon\r",
        "a/Icon\r",
        "__MACOSX/a/._b",
        "a/__MACOSX/x",
        ".Trashes/",
        "._a",
        ".apdisk",
    ],
    "WINDOWS_METADATA": ["THUMBS.DB", "a/Desktop.ini", "$RECYCLE.BIN/a.txt", "ehthumbs.db"],
    "EDITOR_LEFTOVER": ["a~", ".a.swo", "~$letter.docx", ".~lock.a.odt#", "#a#", ".#a"],
    "VCS_LEFTOVER": [".git", "a/.git", ".git/", ".hg/x", "CVS/Entries", "_darcs/format"],
}
_NO_JUNK = [
    "Icon",
    "CVS/my resume.pdf",
    "CVS/",
    ".gitignore",
    ".gitattributes",
    ".github/workflows/a.yml",
    "~",
    "##",
    "a.swp",
    ".swp",
    "._",
    "._folder/a.txt",
    "thumbs.db/",
    "~home/a",
    "backup~/a",
    ".svnx/a",
]


@pytest.mark.parametrize(
    ("path", "reason"), [(path, reason) for reason, paths in _JUNK.items() for path in paths]
)
def test_junk_is_recognised(path: str, reason: str) -> None:
    """Each rule finds what it is for."""
    assert junk_reason(path) == reason


@pytest.mark.parametrize("path", _NO_JUNK)
def test_what_resembles_junk_is_kept(path: str) -> None:
    """No rule takes a user's file."""
    assert junk_reason(path) is None


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.txt", "a.txt", True),
        ("*.txt", "a/b/c.txt", True),
        ("*.txt", "a.txt.png", False),
        ("*.TXT", "a.txt", False),
        ("/*.txt", "a.txt", True),
        ("/*.txt", "a/b.txt", False),
        ("a/*.txt", "a/b.txt", True),
        ("a/*.txt", "a/b/c.txt", False),
        ("a/**/c.txt", "a/c.txt", True),
        ("a/**/c.txt", "a/b/b/c.txt", True),
        ("**", "a/b", True),
        ("a", "x/a/b.txt", True),
        ("a/", "x/a/b.txt", True),
        ("a/", "x/a", False),
        ("a/", "x/a/", True),
        ("a/b", "a/b/c/d", True),
        ("a/b", "x/a/b", False),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("**/**/a", "a", True),
        ("x/**", "x/y/z", True),
        ("x/**", "y/x/z", False),
    ],
)
def test_globs_match_as_documented(*, pattern: str, path: str, matches: bool) -> None:
    """Segments, depth, folders and case."""
    assert Glob(pattern).matches(path) is matches


def test_a_glob_full_of_stars_is_quick() -> None:
    """Patterns made to backtrack meet names made to fail them, and nothing hangs."""
    assert not Glob("*a" * 400 + "b").matches("a" * 1000)
    assert not Glob("/".join(["**", "a"] * 100) + "/b").matches("/".join(["a"] * 500))


@pytest.mark.parametrize("patterns", [("",), ("/",), ("a" * 2000,), ("a",) * (PATTERNS_MAX + 1)])
def test_meaningless_globs_are_errors_of_the_options(patterns: tuple[str, ...]) -> None:
    """They are found before any archive is opened."""
    with pytest.raises(CleanOptionsError):
        CleanOptions(drop=patterns)


def test_drop_removes_what_it_names_and_empties_folders(workshop: Workshop) -> None:
    """A folder left without files goes with its own reason."""
    data = archive([folder_entry("logs/"), text_entry("logs/a.log", "x"), text_entry("b", "x")])
    cleaned = workshop.clean(data, CleanOptions(drop=("*.log",)))
    assert cleaned.kept == ["b"]
    assert cleaned.removed == {"logs/a.log": "DROPPED_BY_OPTION", "logs/": "EMPTY_DIRECTORY"}


def test_keep_protects_from_every_rule(workshop: Workshop) -> None:
    """Junk, dropped, zero-byte and empty: all stay when named, with the folders around them."""
    data = archive(
        [
            folder_entry(".git/"),
            text_entry(".git/HEAD", "ref"),
            text_entry("zero"),
            folder_entry("outer/"),
            folder_entry("outer/empty/"),
            text_entry("other", "x"),
        ]
    )
    keep = (".git/HEAD", "zero", "empty/")
    options = CleanOptions(keep=keep, drop=("**",), drop_zero_byte_files=True)
    cleaned = workshop.clean(data, options)
    assert cleaned.kept == [".git/", ".git/HEAD", "zero", "outer/", "outer/empty/"]
    assert cleaned.removed == {"other": "DROPPED_BY_OPTION"}


def test_zero_byte_files_go_when_asked(workshop: Workshop) -> None:
    """They have their own reason, and the folder they leave behind has its own."""
    data = archive([folder_entry("d/"), text_entry("d/empty.txt"), text_entry("full.txt", "x")])
    cleaned = workshop.clean(data, CleanOptions(drop_zero_byte_files=True))
    assert cleaned.kept == ["full.txt"]
    assert cleaned.removed == {"d/empty.txt": "ZERO_BYTE_FILE", "d/": "EMPTY_DIRECTORY"}


def test_junk_data_is_not_read(workshop: Workshop) -> None:
    """Damage in what is thrown away is no reason to refuse."""
    data = archive([text_entry("a", "x"), text_entry(".DS_Store", "y", packed=b"z")])
    assert workshop.clean(data).kept == ["a"]
