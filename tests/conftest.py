"""What holds for every test: a clean environment, reproducible examples, no task left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator

import hypothesis
import pytest

_LAST_TURNS_S = 2.0

pytest_plugins = ["tests.fixtures.servers"]

# Two cores shared with servers make any deadline of one example a matter of luck; failures in CI
# come back with the same examples.
hypothesis.settings.register_profile(
    "tdp", deadline=None, print_blob=True, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("tdp")


def pytest_configure() -> None:
    """Forgets the developer's own TDP settings and failpoints, here and in child processes."""
    for name in [name for name in os.environ if name.startswith("TDP_")]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def tasks_end_with_their_test(request: pytest.FixtureRequest) -> None:
    """Makes each asynchronous test fail that leaves a task running after its teardown."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("no_task_left")


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Compares the loop's tasks before and after; an ending task gets a moment to end."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=_LAST_TURNS_S)
    assert not left, f"the test left tasks running: {sorted(task.get_name() for task in left)}"
