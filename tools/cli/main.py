"""Entry point of `tdp`: finds the command's module and imports only that."""

import sys
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from foundation.errors import TdpError
from tools.cli.output import ExitCode, report_error

# Name: module, and whether the module is a group of commands or one command by itself.
COMMANDS: Final = {
    "demo": "tools.cli.commands.demo",
    "dev": "tools.cli.commands.dev",
    "order": "tools.cli.commands.order",
    "evidence": "tools.cli.commands.evidence",
    "conservation": "tools.cli.commands.conservation",
    "task": "tools.cli.commands.task",
    "workflow": "tools.cli.commands.workflow",
    "schedule": "tools.cli.commands.schedule",
    "node": "tools.cli.commands.node",
    "application": "tools.cli.commands.application",
    "callback": "tools.cli.commands.callback",
    "capability": "tools.cli.commands.capability",
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are named."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names, in the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ANN401 - of typer's own click
        """Import the command's module and return its command."""
        del ctx
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        app: typer.Typer = import_module(module).app
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    name="tdp",
    help="Submit work, watch it, operate the platform, and prove what became of an order.",
    epilog="Exit status: 0 done, 1 failed, 2 refused (what was asked is wrong), 3 unreachable, "
    "4 the order needs attention or facts do not balance, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Have a callback, so that typer makes a group."""


def main() -> None:
    """Run and exit: 0 done, 1 failed, 2 refused, 3 unreachable, 4 needs attention."""
    try:
        app()
    except TdpError as error:
        # The command that would know has failed; whoever asked for JSON reads JSON.
        sys.exit(report_error(error, as_json="--json" in sys.argv))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
