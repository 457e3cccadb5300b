"""Statements that live in .sql files under a name and a purpose, loaded and checked once.

    -- name: claim_due
    -- purpose: takes the rows that are due, so that one publisher at a time has them
    select ... from {{table}} where ...;

`{{word}}` stands for an identifier given at load (a table's name); nothing else is ever
substituted: values are always parameters.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

_HEADER = re.compile(r"^-- name:[ \t]*(?P<name>.*?)[ \t]*$", re.MULTILINE)
_PURPOSE = re.compile(r"\A\s*-- purpose:[ \t]*(?P<purpose>\S.*)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{(?P<word>[^{}]*)\}\}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_IDENTIFIER_LENGTH_MAX: Final = 63


class NamedSqlError(ValueError):
    """A .sql file, or an identifier for it, that is not as it must be; a defect of the program."""


class NamedSql(Mapping[str, str]):
    """The statements of one or more .sql files, by name, as items or as attributes.

    Each text begins with `/* name */`, so that server logs and pg_stat_activity say which
    statement it is.
    """

    __slots__ = ("_purposes", "_texts")

    def __init__(self, texts: Mapping[str, str], purposes: Mapping[str, str]) -> None:
        """Keep copies of the texts and of the purposes, both by name."""
        self._texts = dict(texts)
        self._purposes = dict(purposes)

    @classmethod
    def load(
        cls, package: str, *file_names: str, identifiers: Mapping[str, str] | None = None
    ) -> "NamedSql":
        """Read the files of a package (also from an installed wheel).

        `identifiers` replace `{{word}}` and must be plain lower-case SQL words; each must
        occur. Raises NamedSqlError for a malformed file, a repeated name or a wrong identifier.
        """
        folder = files(package)
        sources = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in file_names}
        return cls.parse(sources, identifiers or {})

    @classmethod
    def parse(cls, sources: Mapping[str, str], identifiers: Mapping[str, str]) -> "NamedSql":
        """Parse texts by file name; errors as in `load`."""
        _check_identifiers(identifiers, "".join(sources.values()))
        texts: dict[str, str] = {}
        purposes: dict[str, str] = {}
        for file_name, source in sources.items():
            for name, purpose, text in _statements(file_name, source):
                if name in texts:
                    raise NamedSqlError(f"{file_name}: statement {name!r} is defined twice")
                texts[name] = f"/* {name} */ {_substituted(text, identifiers, file_name)}"
                purposes[name] = purpose
        return cls(texts, purposes)

    def __getitem__(self, name: str) -> str:
        """The text of a statement; KeyError names those there are."""
        if name not in self._texts:
            raise KeyError(f"no statement {name!r}; there are: {', '.join(sorted(self._texts))}")
        return self._texts[name]

    def __getattr__(self, name: str) -> str:
        """The text of a statement; AttributeError names those there are."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of the files."""
        return iter(self._texts)

    def __len__(self) -> int:
        """Number of statements."""
        return len(self._texts)

    def purpose(self, name: str) -> str:
        """What the statement is for, as its file says."""
        return self._purposes[name]


def checked_identifier(word: str) -> str:
    """Return `word` if it is a plain lower-case SQL identifier, else raise NamedSqlError."""
    if not _NAME.fullmatch(word) or len(word) > _IDENTIFIER_LENGTH_MAX:
        raise NamedSqlError(
            f"identifier {word!r} is not a lower-case word of at most "
            f"{_IDENTIFIER_LENGTH_MAX} letters, digits and underscores"
        )
    return word


def _check_identifiers(identifiers: Mapping[str, str], source: str) -> None:
    used = {match["word"] for match in _PLACEHOLDER.finditer(source)}
    for word, identifier in identifiers.items():
        checked_identifier(identifier)
        if word not in used:
            raise NamedSqlError(f"identifier {word!r} is given but no statement uses it")


def _statements(file_name: str, source: str) -> Iterator[tuple[str, str, str]]:
    headers = list(_HEADER.finditer(source))
    if not headers:
        raise NamedSqlError(f"{file_name}: holds no '-- name: ...' line")
    _refuse_sql_outside(file_name, source[: headers[0].start()])
    ends = [header.start() for header in headers[1:]] + [len(source)]
    for header, end in zip(headers, ends, strict=True):
        yield _statement(file_name, header["name"], source[header.end() : end])


def _refuse_sql_outside(file_name: str, text: str) -> None:
    for line in text.splitlines():
        if line.strip() and not line.startswith("--"):
            raise NamedSqlError(f"{file_name}: {line.strip()!r} stands before the first name")


def _statement(file_name: str, name: str, body: str) -> tuple[str, str, str]:
    if not _NAME.fullmatch(name):
        raise NamedSqlError(f"{file_name}: {name!r} is not a lower-case statement name")
    purpose = _PURPOSE.match(body)
    if purpose is None:
        raise NamedSqlError(f"{file_name}: statement {name!r} lacks its '-- purpose: ...' line")
    text = body[purpose.end() :].strip().removesuffix(";").strip()
    if not text:
        raise NamedSqlError(f"{file_name}: statement {name!r} is empty")
    return name, purpose["purpose"].strip(), text


def _substituted(text: str, identifiers: Mapping[str, str], file_name: str) -> str:
    def identifier(match: re.Match[str]) -> str:
        word = match["word"]
        if word not in identifiers:
            raise NamedSqlError(f"{file_name}: {{{{{word}}}}} has no identifier given for it")
        return identifiers[word]

    return _PLACEHOLDER.sub(identifier, text)
