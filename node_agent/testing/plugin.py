"""The pytest plugin of capability authors: the fixture `run_capability`. Installed with TDP."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from node_agent.testing.trial import RunCapability, Trial


@pytest.fixture
def run_capability(tmp_path: Path) -> "RunCapability":
    """Run one attempt of a capability in this process, without an agent or any server."""
    # Imported by the tests that ask for it: pytest loads this module in every environment.
    from node_agent.testing import trial

    run_count = 0

    def run(capability: Any, given: Any, **options: Any) -> "Trial":  # noqa: ANN401 - as RunCapability types it
        nonlocal run_count
        run_count += 1
        folder = tmp_path / f"attempt-{run_count}"
        return trial.run_capability(folder, capability, given, **options)

    return run
