"""An agent that offers one project's capabilities: started, heard, stopped."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.cli.capability.project import Project
from tools.cli.connection import Connection

DECLARE: Final = "tools.cli.capability.declare"
# The agent ends with this process, also with one that is killed.
_AGENT: Final = (
    "import runpy, sys\n"
    "from foundation.child_process import die_with_parent\n"
    "die_with_parent(int(sys.argv.pop(1)))\n"
    "runpy.run_module('node_agent', run_name='__main__', alter_sys=True)\n"
)
_LINES_KEPT: Final = 30
_LINE_BYTES_MAX: Final = 1024 * 1024
_STOP_PATIENCE_S: Final = 15.0

Document = dict[str, Any]


class BrokenProjectError(Exception):
    """The project's capabilities cannot be loaded; the message says where and why."""


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """Where the agent belongs, and under which name."""

    project: Project
    connection: Connection
    node_name: str
    join_token: str
    state_folder: Path
    slots: int = 1

    def environment(self) -> Mapping[str, str]:
        """Variables of the agent: nothing of this process's own settings of agents."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TDP_AGENT_", "TDP_CLI_"))
        }
        return {
            **kept,
            "PYTHONPATH": _import_path(self.project),
            "PYTHONUNBUFFERED": "1",
            "TDP_AGENT_CONTROL_PLANE": self.connection.control_target,
            "TDP_AGENT_TLS": str(self.connection.control_tls).lower(),
            "TDP_AGENT_NODE_NAME": self.node_name,
            "TDP_AGENT_JOIN_TOKEN": self.join_token,
            "TDP_AGENT_STATE_FOLDER": str(self.state_folder),
            "TDP_AGENT_CAPABILITIES": json.dumps(self.project.references),
            "TDP_AGENT_SLOTS": str(self.slots),
            "TDP_AGENT_LOG_LEVEL": "debug",
            # A change of code waits for no long attempt: it is run again on the new code.
            "TDP_AGENT_DRAIN_GRACE_S": "1",
            "TDP_AGENT_STOP_GRACE_S": "1",
            "TDP_AGENT_FLUSH_S": "2",
            "TDP_AGENT_RECONNECT_BASE_S": "0.2",
            "TDP_AGENT_RECONNECT_CAP_S": "2",
        }


async def declarations(project: Project) -> list[Document]:
    """Load the project in a fresh process; raises BrokenProjectError with file and line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        DECLARE,
        *project.references,
        env={**os.environ, "PYTHONPATH": _import_path(project)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    # What the author's module prints at import stands before the document.
    text = said.decode("utf-8", "replace").splitlines()[-1:] or [""]
    with contextlib.suppress(ValueError):
        document = json.loads(text[0])
        if process.returncode == 0:
            declared: list[Document] = document
            return declared
        raise BrokenProjectError(document["message"])
    raise BrokenProjectError(
        f"loading the project ended with status {process.returncode}:\n"
        + errors.decode("utf-8", "replace")[-2_000:]
    )


class DevAgent:
    """One process of the agent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take a started process; use `start`."""
        self._process = process
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)

    @classmethod
    async def start(cls, setup: AgentSetup) -> "DevAgent":
        """Start it; it enrols by itself."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _AGENT,
            str(os.getpid()),
            "serve",
            env=dict(setup.environment()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for the command, which then ends the agent in order.
            start_new_session=True,
            limit=_LINE_BYTES_MAX,
        )
        return cls(process)

    async def events(self) -> AsyncIterator[Document]:
        """What it logs, event by event, until it ends."""
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            if isinstance(event, dict):
                if event.get("level") != "debug":
                    self._last.append(_shown(event))
                yield event
            elif text:
                self._last.append(text)

    async def stop(self) -> None:
        """End it in order, by force if it takes too long; idempotent."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(_STOP_PATIENCE_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        await self._process.wait()

    async def ended(self) -> str:
        """Wait for its end; answer its status and last lines."""
        status = await self._process.wait()
        return f"the agent ended with status {status}:\n" + "\n".join(self._last)


def _import_path(project: Project) -> str:
    folders = [*map(str, project.import_folders), *(one for one in sys.path if one)]
    return os.pathsep.join(dict.fromkeys(folders))


def _shown(event: Document) -> str:
    rest = {name: value for name, value in event.items() if name not in {"event", "timestamp"}}
    return f"{event.get('event')} {json.dumps(rest, ensure_ascii=False)}"
