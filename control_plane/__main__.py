"""`python -m control_plane serve | migrate | reseal-secrets | check-config`."""

import asyncio
import sys

from control_plane.bootstrap.resealing import reseal_secrets
from control_plane.failpoints import CONTROL_PLANE_FAILPOINTS
from control_plane.server import migrations, serve
from control_plane.settings import ControlPlaneSettings
from foundation.command_line import Errand, Program, run_program

_PROGRAM = Program(
    module="control_plane",
    process_name="control-plane",
    settings_class=ControlPlaneSettings,
    failpoints=CONTROL_PLANE_FAILPOINTS,
    serve=serve,
    serve_purpose="run a replica",
    errands={
        "migrate": Errand(
            "bring the database up to date",
            lambda settings: asyncio.run(migrations(settings).migrate()),
        ),
        "reseal-secrets": Errand(
            "seal kept secrets with the newest key, so that older keys can be dropped",
            lambda settings: asyncio.run(reseal_secrets(settings)),
        ),
        "check-config": Errand("read the settings and say what is wrong", lambda _settings: None),
    },
)


if __name__ == "__main__":
    sys.exit(run_program(_PROGRAM))
