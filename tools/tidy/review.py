"""Applies all rules of the style guide to the whole repository."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from tools.tidy.calls import check_calls
from tools.tidy.dead import dead_modules
from tools.tidy.shape import check_shape
from tools.tidy.sources import Finding, python_files, text_files
from tools.tidy.testing import check_tests
from tools.tidy.words import check_words

_PYTHON_RULES = (check_shape, check_calls, check_tests)


def review(root: Path) -> list[Finding]:
    """Collects every finding in the repository at `root`, sorted by place.

    Raises:
        SyntaxError: a file is no Python; the error names it.
    """
    sources = python_files(root)
    by_file = (rule(source) for source in sources for rule in _PYTHON_RULES)
    by_text = (check_words(source) for source in text_files(root))
    return sorted(chain(*by_file, *by_text, dead_modules(sources, root)))
