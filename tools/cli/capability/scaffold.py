"""Writes a new capability's package: working, tested, and found by an agent once installed."""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foundation.errors import FailedPreconditionError, InvalidArgumentError

_TEMPLATE: Final = Path(__file__).with_name("template")
_SUFFIX: Final = ".tmpl"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_HIDDEN: Final = {"gitignore": ".gitignore"}


def scaffold(name: str, folder: Path | None) -> tuple[Path, list[Path]]:
    """Write the package of the capability `name`; answer its folder and the files in it.

    Without `folder` it is the name with dashes, here. Raises InvalidArgumentError for a name
    that cannot be one, FailedPreconditionError for a folder with something in it.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError.of_field(
            "NAME", f"{name!r} is not dotted lower-case words, such as image.statistics"
        )
    package = name.replace(".", "_")
    if keyword.iskeyword(package):
        raise InvalidArgumentError.of_field("NAME", f"{package!r} is a word of Python; add another")
    home = folder if folder is not None else Path(package.replace("_", "-"))
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise FailedPreconditionError(
            f"{home} is there already; name another folder with --folder", reason="FOLDER_IN_USE"
        )
    words = {
        "__NAME__": name,
        "__PACKAGE__": package,
        "__DISTRIBUTION__": package.replace("_", "-"),
    }
    written = []
    for source, target in _files(home, words):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(source.read_text(encoding="utf-8"), words), encoding="utf-8")
        written.append(target)
    return home, written


def _files(home: Path, words: dict[str, str]) -> Iterator[tuple[Path, Path]]:
    for source in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
        path = _filled(str(source.relative_to(_TEMPLATE)), words).removesuffix(_SUFFIX)
        yield source, home / _HIDDEN.get(path, path)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
