"""The command line of a process: `python -m <module> <command>`, the same for each of them."""

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from foundation.errors import TdpError
from foundation.failpoints import install_failpoints
from foundation.lifecycle import ProcessConfig, StopRequest, run_process
from foundation.logging import LogConfig, configure_logging
from foundation.settings import ServiceSettings, load_settings, unknown_variables

SERVE: Final = "serve"
FAILED: Final = 1
SETTINGS_WRONG: Final = 2

Settings = TypeVar("Settings", bound=ServiceSettings)
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Errand(Generic[Settings]):
    """A command that ends by itself: what it is for, and what it does."""

    purpose: str
    run: Callable[[Settings], object]


@dataclass(frozen=True, slots=True)
class Program(Generic[Settings]):
    """What a process can be told to do: to serve, and the errands by their names."""

    module: str
    process_name: str
    settings_class: type[Settings]
    failpoints: Iterable[str]
    serve: Callable[[Settings, StopRequest], Awaitable[None]]
    serve_purpose: str
    errands: Mapping[str, Errand[Settings]]


def run_program(program: Program[Settings], arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return the exit status.

    0: done. 1: it failed. 2: the arguments or the settings are wrong, which standard error says.
    """
    command = _command(program, arguments)
    try:
        settings = load_settings(program.settings_class)
    except TdpError as error:
        return _refused(error, SETTINGS_WRONG)
    configure_logging(LogConfig(program.process_name, settings.log_format, settings.log_level))
    install_failpoints(program.failpoints, os.environ)
    for name, near in unknown_variables(program.settings_class, os.environ).items():
        _log.warning("setting_unknown", variable=name, did_you_mean=near)
    if command == SERVE:
        config = ProcessConfig(program.process_name, uvloop=settings.uvloop)
        return run_process(config, lambda stop: program.serve(settings, stop))
    try:
        program.errands[command].run(settings)
    except TdpError as error:
        return _refused(error, FAILED)
    return 0


def _command(program: Program[Settings], arguments: Sequence[str] | None) -> str:
    purposes = {SERVE: program.serve_purpose}
    purposes |= {name: errand.purpose for name, errand in program.errands.items()}
    parser = argparse.ArgumentParser(prog=f"python -m {program.module}")
    parser.add_argument(
        "command",
        choices=tuple(purposes),
        help="; ".join(f"{name}: {purpose}" for name, purpose in purposes.items()),
    )
    command: str = parser.parse_args(arguments).command
    return command


def _refused(error: TdpError, exit_status: int) -> int:
    sys.stderr.write(f"{error.reason}: {error}\n")
    return exit_status
