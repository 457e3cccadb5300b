"""Checks workflow definitions on this machine, as a control plane would at publish."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from foundation.errors import FailedPreconditionError, FieldViolation, InvalidArgumentError
from tools.cli.output import plain

if TYPE_CHECKING:
    from control_plane.core.workflows.publishing import CheckedDefinition


class CheckerMissingError(FailedPreconditionError):
    """The packages that read and compile definitions are not installed."""

    reason = "CHECKER_MISSING"


@dataclass(frozen=True, slots=True)
class Report:
    """What the check of one file found; name and version are empty where it is not sound."""

    file: str
    name: str
    version: str
    digest: str
    violations: tuple[FieldViolation, ...]
    warnings: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether the definition could be published."""
        return not self.violations

    def document(self) -> Mapping[str, object]:
        """Return it as JSON data; line and column are 0 where they are not known."""
        return {
            "file": self.file,
            "valid": self.sound,
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "violations": [
                {
                    "field": one.field,
                    "line": line,
                    "column": column,
                    "reason": one.reason,
                    "description": one.description,
                }
                for one in self.violations
                for line, column in [place_of(one)]
            ],
            "warnings": list(self.warnings),
        }


def read_definition(path: Path) -> str:
    """Return a file's text; InvalidArgumentError naming the file if it is none."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{path} is no text in UTF-8 (byte {error.start}): name a YAML or JSON file",
            reason="WORKFLOW_INVALID",
        ) from None


def check_file(path: Path) -> Report:
    """Check one file by the rules of publishing; CheckerMissingError where they are not installed.

    Which capabilities exist is not known here, so nothing is said about them.
    """
    try:
        checked = _checked(read_definition(path))
    except InvalidArgumentError as error:
        whole = FieldViolation("definition", error.message, error.reason)
        return Report(str(path), "", "", "", error.field_violations or (whole,), ())
    definition = checked.definition
    return Report(
        str(path), definition.name, definition.version, checked.digest, (), checked.warnings
    )


def _checked(text: str) -> "CheckedDefinition":
    try:
        from control_plane.adapters.outbound.cel import CelCompiler
        from control_plane.core.workflows.publishing import check_definition
    except ImportError as error:
        raise CheckerMissingError(
            f"the checks need {error.name}: install tdp[control-plane], or let a server check "
            "with `tdp workflow publish --check-only`"
        ) from error
    return check_definition(text, CelCompiler(), lambda _name, _version: True)


def place_of(violation: FieldViolation) -> tuple[int, int]:
    """Return line and column, both 0 where they are not known."""
    place = getattr(violation, "place", None)
    return (0, 0) if place is None else (place.line, place.column)


def render_reports(console: Console, reports: Sequence[Report]) -> None:
    """Write each problem as file:line:column, so that editors and terminals can go there."""
    for report in reports:
        for one in report.violations:
            line, column = place_of(one)
            where = f"{report.file}:{line}:{column}" if line else report.file
            text = one.description.removesuffix(f" (line {line}, column {column})")
            console.print(
                f"[bold]{plain(where)}[/]: [red]{plain(one.field)}[/]: {plain(text)} "
                f"[dim]{one.reason}[/]",
                soft_wrap=True,
            )
        for warning in report.warnings:
            console.print(
                f"[bold]{plain(report.file)}[/]: [yellow]note[/] {plain(warning)}", soft_wrap=True
            )
        if report.sound:
            console.print(
                f"[bold]{plain(report.file)}[/]: {report.name} {report.version} [green]is sound[/]",
                soft_wrap=True,
            )
