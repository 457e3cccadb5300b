"""The workshop that every test of archive.clean works in."""

from pathlib import Path

import pytest

from tests.unit.node_agent.archive_clean.cleaning import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """An empty folder with a cleaner."""
    return Workshop(tmp_path)
