"""A platform of real processes, and Chromium in front of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.backstage import Backstage
from tests.browser.console import Console
from tools.dev_stack.platform import (
    WORKFLOWS_FOLDER,
    Platform,
    PlatformConfig,
    running_platform,
)
from tools.dev_stack.platform_profiles import TEST

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

PATIENCE_MS = 30_000
APPROVED_CLEAN = Path(__file__).with_name("approved-clean.yaml")


@pytest.fixture(scope="session")
def backstage() -> Iterator[Backstage]:
    """Where the platform runs: the browser's driver has this thread's event loop for itself."""
    with Backstage() as backstage:
        yield backstage


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory, backstage: Backstage) -> Iterator[Platform]:
    """One control plane, two gateways and two agents; the second gateway's orders are approved."""
    config = PlatformConfig(
        tmp_path_factory.mktemp("platform"),
        profile=TEST,
        gateways=2,
        variables={"gateway-2": {"TDP_GATEWAY_CLEAN_WORKFLOW": "approved-clean@1"}},
        workflow_files=(*sorted(WORKFLOWS_FOLDER.glob("*.yaml")), APPROVED_CLEAN),
    )
    running = running_platform(config)
    yield backstage.run(running.__aenter__())
    backstage.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The distribution's Chromium; without its sandbox where root runs it, as in a container."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser without any history, in English, on a desk."""
    context = browser.new_context(
        viewport={"width": 1380, "height": 900}, locale="en-GB", accept_downloads=True
    )
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def console(context: BrowserContext, platform: Platform) -> Iterator[Console]:
    """A tab on the page, signed in by nobody yet; it must not complain until the end."""
    console = Console(context.new_page(), platform)
    console.open()
    yield console
    assert console.complaints == []


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where the pictures go."""
    folder = Path(__file__).parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
