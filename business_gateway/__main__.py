"""`python -m business_gateway serve | migrate | check-config`."""

import argparse
import asyncio
import os
import sys

import structlog

from business_gateway.failpoints import GATEWAY_FAILPOINTS
from business_gateway.server import migrations, serve
from business_gateway.settings import GatewaySettings
from business_gateway.sync_failpoints import SYNC_FAILPOINTS
from foundation.errors import TdpError
from foundation.failpoints import install_failpoints
from foundation.lifecycle import ProcessConfig, run_process
from foundation.logging import LogConfig, configure_logging
from foundation.settings import load_settings, unknown_variables

_PROCESS = "gateway"
_CONFIG_ERROR = 2


def main() -> int:
    """Run the command that the arguments name and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m business_gateway", description=__doc__)
    parser.add_argument(
        "command",
        choices=("serve", "migrate", "check-config"),
        help="serve: run a replica; migrate: bring the database up to date; "
        "check-config: read the settings and say what is wrong",
    )
    command: str = parser.parse_args().command
    try:
        settings = load_settings(GatewaySettings)
    except TdpError as error:
        sys.stderr.write(f"{error.reason}: {error}\n")
        return _CONFIG_ERROR
    configure_logging(LogConfig(_PROCESS, settings.log_format, settings.log_level))
    install_failpoints(GATEWAY_FAILPOINTS | SYNC_FAILPOINTS, os.environ)
    log = structlog.stdlib.get_logger(__name__)
    for name, near in unknown_variables(GatewaySettings, os.environ).items():
        log.warning("setting_unknown", variable=name, did_you_mean=near)
    if command == "check-config":
        return 0
    if command == "migrate":
        asyncio.run(migrations(settings).migrate())
        return 0
    config = ProcessConfig(_PROCESS, uvloop=settings.uvloop)
    return run_process(config, lambda stop: serve(settings, stop))


if __name__ == "__main__":
    sys.exit(main())
