"""Runs protoc over every contract and leaves a finished package tree in a folder of choice."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpc_tools import protoc

PACKAGE = "tdp"
_PACKAGE_DOCSTRING = '"""Generated from the contracts; run `make protos` instead of editing."""\n'
_GRPC_STUB_OPTIONS = "only_async,generate_concrete_servicer_stubs"


class GenerationError(Exception):
    """The contracts could not be turned into code; the message says why."""


def contracts_under(protos_dir: Path) -> list[Path]:
    """Lists the contract files, relative to `protos_dir`, in a stable order.

    Raises:
        GenerationError: there is none, so the folder is most likely the wrong one.
    """
    found = sorted(
        path.relative_to(protos_dir) for path in protos_dir.glob(f"{PACKAGE}/**/*.proto")
    )
    if not found:
        raise GenerationError(
            f"no .proto file under {protos_dir / PACKAGE}; run this from the repository root",
        )
    return found


def include_dirs(protos_dir: Path) -> list[Path]:
    """Names the folders that imports are looked up in: ours, protobuf's own, and google/api, rpc.

    Raises:
        GenerationError: grpcio-tools or googleapis-common-protos is not installed.
    """
    return [protos_dir, *third_party_dirs()]


def third_party_dirs() -> list[Path]:
    """Names the folders inside installed packages that carry other people's contracts."""
    well_known = _package_dirs("grpc_tools")[0] / "_proto"
    return [
        well_known,
        *(path.parent for path in _package_dirs("google") if (path / "rpc").is_dir()),
    ]


def _package_dirs(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise GenerationError(f"the Python package {name!r} is missing; run `make setup`")
    return [Path(location) for location in spec.submodule_search_locations]


def generate(protos_dir: Path, out_dir: Path) -> list[Path]:
    """Writes messages, services and their type stubs for all contracts into `out_dir`.

    What `out_dir` held of the package before is removed, so a deleted contract leaves nothing.
    Files come out byte for byte equal for equal contracts and tool versions.

    Args:
        protos_dir: the folder that holds `tdp/`.
        out_dir: the import root to write `tdp/` into; made if missing.

    Returns:
        The files written, relative to `out_dir`, sorted.

    Raises:
        GenerationError: protoc refused a contract; its own words are on standard error.
    """
    contracts = contracts_under(protos_dir)
    includes = include_dirs(protos_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    # Beside the package first: a contract that protoc refuses must not cost the code there is.
    with tempfile.TemporaryDirectory(prefix=".new_", dir=out_dir) as new:
        _run_protoc(_arguments(contracts, includes, Path(new)))
        _add_package_files(Path(new))
        shutil.rmtree(out_dir / PACKAGE, ignore_errors=True)
        (Path(new) / PACKAGE).rename(out_dir / PACKAGE)
    return generated_files(out_dir)


def generated_files(out_dir: Path) -> list[Path]:
    """Lists the files of the generated package, relative to `out_dir`, in a stable order."""
    kinds = (".py", ".pyi", ".typed")
    return sorted(
        path.relative_to(out_dir)
        for path in out_dir.glob(f"{PACKAGE}/**/*")
        if path.is_file() and path.suffix in kinds
    )


def _arguments(contracts: Sequence[Path], includes: Sequence[Path], out_dir: Path) -> list[str]:
    # The plug-ins live beside the interpreter, which need not be on PATH (no activated
    # environment), so protoc is told where they are.
    scripts = Path(sys.executable).parent
    return [
        "protoc",
        *(f"--proto_path={include}" for include in includes),
        f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
        f"--python_out={out_dir}",
        f"--grpc_python_out={out_dir}",
        f"--mypy_out=quiet:{out_dir}",
        f"--mypy_grpc_out=quiet,{_GRPC_STUB_OPTIONS}:{out_dir}",
        *(str(contract) for contract in contracts),
    ]


def _run_protoc(arguments: Sequence[str]) -> None:
    status = protoc.main(list(arguments))
    if status != 0:
        raise GenerationError(f"protoc ended with status {status}; its complaint is printed above")


def _add_package_files(out_dir: Path) -> None:
    for folder in _package_folders(out_dir / PACKAGE):
        (folder / "__init__.py").write_text(_PACKAGE_DOCSTRING, encoding="utf-8")
    (out_dir / PACKAGE / "py.typed").write_text("", encoding="utf-8")


def _package_folders(root: Path) -> Iterator[Path]:
    yield root
    yield from sorted(path for path in root.glob("**/*") if path.is_dir())
