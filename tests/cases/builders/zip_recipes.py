"""The ZIP cases that are too large to keep: `recipe.call` in cases.json names a function here."""

from tests.cases.builders.zip_builder import archive, text_entry


def many_names(count: int) -> list[str]:
    """Names of tiny files in folders of a hundred."""
    return [f"{number // 100:03}/{number:05}.txt" for number in range(count)]


def many_entries(count: int) -> bytes:
    """The files of `many_names`, without folder entries."""
    return archive([text_entry(name, str(number)) for number, name in enumerate(many_names(count))])


def ten_thousand_entries() -> bytes:
    """As many entries as the default limit allows."""
    return many_entries(10_000)


def bad_ten_thousand_and_one_entries() -> bytes:
    """One more."""
    return many_entries(10_001)
