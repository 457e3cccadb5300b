"""The loader of named statements refuses every malformed file."""

import pytest

from foundation.postgres.named_sql import NamedSql, NamedSqlError

TWO = """-- What this file is about.

-- name: first
-- purpose: counts
select count(*)
from {{table}};

-- name: second_one
-- purpose: adds
-- and a comment of its own
select 1;
"""


def parse(source: str, **identifiers: str) -> NamedSql:
    return NamedSql.parse({"test.sql": source}, identifiers)


def test_statements_are_found_by_name_and_carry_it() -> None:
    """A text is an item and an attribute, begins with its name, and ends without semicolon."""
    sql = parse(TWO, table="orders")
    assert sql.first == sql["first"] == "/* first */ select count(*)\nfrom orders"
    assert sql.second_one.startswith("/* second_one */ -- and a comment")
    assert list(sql) == ["first", "second_one"]
    assert sql.purpose("first") == "counts"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """A typing mistake names what there is, as an attribute and as an item."""
    sql = parse(TWO, table="orders")
    with pytest.raises(AttributeError, match="no statement 'frist'; there are: first, second_one"):
        _ = sql.frist
    with pytest.raises(KeyError, match="no statement 'frist'"):
        _ = sql["frist"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("select 1;", "holds no '-- name"),
        ("select 1;\n-- name: a\n-- purpose: b\nselect 2;", "stands before the first name"),
        ("-- name: a\nselect 1;", "lacks its '-- purpose"),
        ("-- name: a\n-- purpose:\nselect 1;", "lacks its '-- purpose"),
        ("-- name: a\n-- purpose: b\n;", "is empty"),
        ("-- name: A b\n-- purpose: b\nselect 1;", "not a lower-case statement name"),
        ("-- name:\n-- purpose: b\nselect 1;", "not a lower-case statement name"),
        ("-- name: a\n-- purpose: b\nselect 1 from {{other}};", "{{other}} has no identifier"),
        (
            "-- name: a\n-- purpose: b\nselect 1;\n-- name: a\n-- purpose: c\nselect 2;",
            "'a' is defined twice",
        ),
    ],
)
def test_malformed_files_are_refused(source: str, problem: str) -> None:
    """Each mistake in a file is named at load, not at the first use."""
    with pytest.raises(NamedSqlError, match=problem.replace("{", r"\{")):
        parse(source)


@pytest.mark.parametrize("word", ["Orders", "a b", "a;drop", '"a"', "1a", "", "x" * 64])
def test_identifiers_are_plain_words(word: str) -> None:
    """Nothing but a lower-case word is ever put into a statement."""
    with pytest.raises(NamedSqlError, match="is not a lower-case word"):
        parse(TWO, table=word)


def test_an_identifier_that_nothing_uses_is_refused() -> None:
    """A forgotten place-holder does not go unnoticed."""
    with pytest.raises(NamedSqlError, match="'tabel' is given but no statement uses it"):
        parse(TWO, tabel="orders")


def test_names_are_unique_across_files() -> None:
    """Two files of one load cannot define the same name."""
    sources = {"one.sql": TWO, "two.sql": TWO}
    with pytest.raises(NamedSqlError, match=r"two\.sql: statement 'first' is defined twice"):
        NamedSql.parse(sources, {"table": "orders"})


def test_files_are_read_from_their_package() -> None:
    """The statements of a package are found as a wheel would carry them."""
    sql = NamedSql.load("foundation.outbox.sql", "postgres.sql", identifiers={"table": "outbox"})
    assert "update outbox as claimed" in sql.claim
