"""`python -m business_gateway serve | migrate | check-config`."""

import asyncio
import sys

from business_gateway.failpoints import GATEWAY_FAILPOINTS
from business_gateway.server import migrations, serve
from business_gateway.settings import GatewaySettings
from business_gateway.sync_failpoints import SYNC_FAILPOINTS
from foundation.command_line import Errand, Program, run_program

_PROGRAM = Program(
    module="business_gateway",
    process_name="gateway",
    settings_class=GatewaySettings,
    failpoints=GATEWAY_FAILPOINTS | SYNC_FAILPOINTS,
    serve=serve,
    serve_purpose="run a replica",
    errands={
        "migrate": Errand(
            "bring the database up to date",
            lambda settings: asyncio.run(migrations(settings).migrate()),
        ),
        "check-config": Errand("read the settings and say what is wrong", lambda _settings: None),
    },
)


if __name__ == "__main__":
    sys.exit(run_program(_PROGRAM))
