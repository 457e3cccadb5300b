"""Platforms of real processes for acceptance tests, one for each module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.platform import NOOP_FILE, World
from tests.fixtures.servers import FixtureLoop
from tools.dev_stack.platform import WORKFLOWS_FOLDER, PlatformConfig, running_platform
from tools.dev_stack.platform_profiles import TEST


@pytest.fixture(scope="session")
def one_of_each(
    tmp_path_factory: pytest.TempPathFactory, fixture_loop: FixtureLoop
) -> Iterator[World]:
    """One control plane, one gateway and one agent, shared by the session's modules."""
    config = PlatformConfig(
        tmp_path_factory.mktemp("platform"),
        profile=TEST,
        agents=1,
        workflow_files=(*sorted(WORKFLOWS_FOLDER.glob("*.yaml")), NOOP_FILE),
    )
    running = running_platform(config)
    platform = fixture_loop.run(running.__aenter__())
    yield World(platform, tmp_path_factory.mktemp("client"))
    fixture_loop.run(running.__aexit__(None, None, None))


@pytest.fixture
async def world(one_of_each: World) -> World:
    """The shared platform, with everything running again that an earlier test left dead."""
    await one_of_each.mend()
    return one_of_each


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory, fixture_loop: FixtureLoop) -> Iterator[World]:
    """Two control planes and three agents on one database."""
    config = PlatformConfig(
        tmp_path_factory.mktemp("crowd"), profile=TEST, control_planes=2, agents=3
    )
    running = running_platform(config)
    platform = fixture_loop.run(running.__aenter__())
    yield World(platform, tmp_path_factory.mktemp("client"))
    fixture_loop.run(running.__aexit__(None, None, None))
