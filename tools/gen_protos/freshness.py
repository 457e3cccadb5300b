"""Tells how committed generated code differs from freshly generated code."""

from __future__ import annotations

from pathlib import Path

from tools.gen_protos.generate import generated_files


def differences(*, expected_dir: Path, actual_dir: Path) -> list[str]:
    """Describes each file that is missing, left over or changed, one sentence each, sorted."""
    expected = set(generated_files(expected_dir))
    actual = set(generated_files(actual_dir))
    missing = [f"{path} is missing" for path in expected - actual]
    left_over = [f"{path} belongs to no contract" for path in actual - expected]
    changed = [
        f"{path} differs from what its contract gives"
        for path in expected & actual
        if (expected_dir / path).read_bytes() != (actual_dir / path).read_bytes()
    ]
    return sorted([*missing, *left_over, *changed])
