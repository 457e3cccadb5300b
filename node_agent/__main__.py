"""`python -m node_agent serve | enroll | check-config`."""

import asyncio
import sys

from foundation.command_line import Errand, Program, run_program
from node_agent.bootstrap import loaded_capabilities
from node_agent.failpoints import AGENT_FAILPOINTS
from node_agent.server import enrol_only, serve
from node_agent.settings import AgentSettings


def _enrol(settings: AgentSettings) -> None:
    identity = asyncio.run(enrol_only(settings))
    sys.stdout.write(f"{identity.node_id}\n")


_PROGRAM = Program(
    module="node_agent",
    process_name="node-agent",
    settings_class=AgentSettings,
    failpoints=AGENT_FAILPOINTS,
    serve=serve,
    serve_purpose="run the agent, enrolling it first where needed",
    errands={
        "enroll": Errand("enrol the agent and end", _enrol),
        "check-config": Errand(
            "read the settings, load the capabilities, and say what is wrong", loaded_capabilities
        ),
    },
)


if __name__ == "__main__":
    sys.exit(run_program(_PROGRAM))
