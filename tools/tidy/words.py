"""Rules about words: no path of anybody's machine, and nothing that only one workplace has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.tidy.sources import Finding, SourceFile

# Put together from parts, so that this file does not breach its own rule.
_WHOLE_FOLDERS = "|".join(("wo" + "rk", "ro" + "ot"))
_PARENTS_OF_HOMES = "|".join(("ho" + "me", "Us" + "ers"))
_MACHINE_PATH = re.compile(
    rf"(?<![\w.*)}}-])/(?:(?:{_WHOLE_FOLDERS})(?![\w-])|(?:{_PARENTS_OF_HOMES})/)"
)
_WORKPLACE = re.compile("|".join((r"\.\./sha" + "red", r"\.lib" + "rary/")))


def check_words(source: SourceFile) -> Iterator[Finding]:
    """Finds machine paths and the workplace's own folders, in any text file."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if _MACHINE_PATH.search(line):
            message = "names a path of one machine; make it relative or a setting"
            yield Finding(source.path, number, "machine-path", message)
        if _WORKPLACE.search(line):
            message = "names a folder that the repository does not have; copy what is needed"
            yield Finding(source.path, number, "workplace-folder", message)
