"""The generator turns contracts into an importable package, always the same, and sees staleness."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.gen_protos import __main__ as command_line
from tools.gen_protos.generate import GenerationError, contracts_under, generate

_CONTRACT = """
syntax = "proto3";
package tdp.sample.v1;
import "google/api/field_behavior.proto";
import "google/protobuf/timestamp.proto";
import "google/rpc/status.proto";
message Sample {
  string name = 1 [(google.api.field_behavior) = REQUIRED];
  google.protobuf.Timestamp seen_at = 2;
  google.rpc.Status status = 3;
}
service SampleService {
  rpc Echo(Sample) returns (Sample);
}
"""
_USE = """
from tdp.sample.v1 import sample_pb2, sample_pb2_grpc
print(sample_pb2.Sample(name="x").name, sample_pb2_grpc.SampleServiceStub.__name__)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    contract = tmp_path / "protos/tdp/sample/v1/sample.proto"
    contract.parent.mkdir(parents=True)
    contract.write_text(_CONTRACT, encoding="utf-8")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_generated_package_imports_without_a_warning(root: Path) -> None:
    """Messages, services, and other people's contracts import from protos/gen as they are."""
    generate(root / "protos", root / "protos/gen")
    environment = os.environ | {"PYTHONPATH": str(root / "protos/gen")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _USE],
        capture_output=True,
        text=True,
        env=environment,
        cwd=root,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("x SampleServiceStub\n", "")


def test_messages_and_services_have_type_stubs(root: Path) -> None:
    """Both kinds of modules come with a stub, and the package says that it is typed."""
    written = {str(path) for path in generate(root / "protos", root / "gen")}
    assert written >= {
        "tdp/py.typed",
        "tdp/sample/v1/__init__.py",
        "tdp/sample/v1/sample_pb2.pyi",
        "tdp/sample/v1/sample_pb2_grpc.pyi",
    }


def test_generation_repeats_itself_byte_for_byte(root: Path) -> None:
    """Two runs over equal contracts give equal files, so that a difference means staleness."""
    generate(root / "protos", root / "one")
    generate(root / "protos", root / "two")
    assert contents(root / "one") == contents(root / "two")


def test_a_deleted_contract_leaves_nothing(root: Path) -> None:
    """A second run removes the code of a contract that is gone."""
    extra = root / "protos/tdp/extra/v1/extra.proto"
    extra.parent.mkdir(parents=True)
    extra.write_text('syntax = "proto3";\npackage tdp.extra.v1;\n', encoding="utf-8")
    generate(root / "protos", root / "gen")
    extra.unlink()
    assert not [path for path in generate(root / "protos", root / "gen") if "extra" in str(path)]


def test_check_names_missing_changed_and_left_over_files(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check passes on fresh code, and fails with a sentence per file on stale code."""
    assert command_line.main(["--root", str(root)]) == 0
    assert command_line.main(["--root", str(root), "--check"]) == 0
    package = root / "protos/gen/tdp/sample/v1"
    (package / "sample_pb2.pyi").unlink()
    (package / "sample_pb2.py").write_text("changed", encoding="utf-8")
    (package / "older_pb2.py").write_text("", encoding="utf-8")
    capsys.readouterr()
    assert command_line.main(["--root", str(root), "--check"]) == 1
    complaint = capsys.readouterr().err
    assert "tdp/sample/v1/sample_pb2.pyi is missing" in complaint
    assert "tdp/sample/v1/sample_pb2.py differs" in complaint
    assert "tdp/sample/v1/older_pb2.py belongs to no contract" in complaint
    assert not (package / "sample_pb2.pyi").exists(), "a check changes nothing"


def test_a_wrong_contract_and_a_wrong_folder_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A contract that protoc refuses, or none at all, is an error, and the old code stays."""
    assert command_line.main(["--root", str(root)]) == 0
    before = contents(root / "protos/gen")
    (root / "protos/tdp/sample/v1/sample.proto").write_text("nonsense", encoding="utf-8")
    assert command_line.main(["--root", str(root)]) == 1
    assert contents(root / "protos/gen") == before
    assert "protoc ended with status 1" in capsys.readouterr().err
    with pytest.raises(GenerationError, match="run this from the repository root"):
        contracts_under(root)
