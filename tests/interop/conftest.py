"""One platform for all clients: a control plane and an agent as real processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.fixtures.servers import FixtureLoop
from tests.interop.clients import WORKFLOW_FILE, Target, install_node_client
from tools.dev_stack.platform import PlatformConfig, running_platform
from tools.dev_stack.platform_profiles import TEST


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory, fixture_loop: FixtureLoop) -> Iterator[Target]:
    """The running control plane, with the workflow published and one agent for its steps."""
    config = PlatformConfig(
        tmp_path_factory.mktemp("platform"),
        profile=TEST,
        gateways=0,
        agents=1,
        workflow_files=(WORKFLOW_FILE,),
    )
    running = running_platform(config)
    platform = fixture_loop.run(running.__aenter__())
    yield Target(platform.control_target(), platform.client_key, platform.admin_key)
    fixture_loop.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def node_packages() -> None:
    """The Node client with the packages of its lock, in a folder under build/."""
    install_node_client()


@pytest.fixture
def key() -> str:
    """An idempotency key that nothing else uses."""
    return f"interop-{uuid.uuid4()}"
