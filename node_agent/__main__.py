"""`python -m node_agent serve | enroll | check-config`."""

import argparse
import asyncio
import os
import sys

import structlog

from foundation.errors import TdpError
from foundation.failpoints import install_failpoints
from foundation.lifecycle import ProcessConfig, run_process
from foundation.logging import LogConfig, configure_logging
from foundation.settings import load_settings, unknown_variables
from node_agent.bootstrap import loaded_capabilities
from node_agent.failpoints import AGENT_FAILPOINTS
from node_agent.server import enrol_only, serve
from node_agent.settings import AgentSettings

_PROCESS = "node-agent"
_CONFIG_ERROR = 2


def main() -> int:
    """Run the command that the arguments name and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m node_agent", description=__doc__)
    parser.add_argument(
        "command",
        choices=("serve", "enroll", "check-config"),
        help="serve: run the agent, enrolling it first where needed; enroll: enrol it and end; "
        "check-config: read the settings, load the capabilities, and say what is wrong",
    )
    command: str = parser.parse_args().command
    try:
        settings = load_settings(AgentSettings)
    except TdpError as error:
        sys.stderr.write(f"{error.reason}: {error}\n")
        return _CONFIG_ERROR
    configure_logging(LogConfig(_PROCESS, settings.log_format, settings.log_level))
    install_failpoints(AGENT_FAILPOINTS, os.environ)
    log = structlog.stdlib.get_logger(__name__)
    for name, near in unknown_variables(AgentSettings, os.environ).items():
        log.warning("setting_unknown", variable=name, did_you_mean=near)
    if command == "serve":
        config = ProcessConfig(_PROCESS, uvloop=settings.uvloop)
        return run_process(config, lambda stop: serve(settings, stop))
    return _once(command, settings)


def _once(command: str, settings: AgentSettings) -> int:
    """Run a command that ends by itself."""
    try:
        if command == "check-config":
            loaded_capabilities(settings)
        else:
            identity = asyncio.run(enrol_only(settings))
            sys.stdout.write(f"{identity.node_id}\n")
    except TdpError as error:
        sys.stderr.write(f"{error.reason}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
