"""The small world of nodes, over a fresh database."""

import pytest

from foundation.postgres.pool import Database
from tests.integration.control_plane.nodes.world import World


@pytest.fixture
def world(control_database: Database) -> World:
    return World(control_database)
