"""How `tdp capability dev` shows what happens, for a person."""

import json
from typing import Any

from rich.console import Console

from tools.cli.capability.dev_agent import Document
from tools.cli.output import plain


class DevView:
    """Prints each event; knows nothing of where they come from."""

    def __init__(self, console: Console) -> None:
        """Print to a console."""
        self._console = console

    def tell(self, event: Document) -> None:
        """Print one event."""
        shown = getattr(self, f"_{event['event']}", None)
        if shown is not None:
            shown(event)

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _declared(self, event: Document) -> None:
        for one in event["capabilities"]:
            inline = ", inline" if one["inline"] else ""
            resumes = ", resumes" if one["supports_resume"] else ""
            self._print(f"[bold]{one['name']}[/] {one['version']}{inline}{resumes}")
            for what in ("input", "output"):
                fields = ", ".join(_fields(json.loads(one[f"{what}_schema_json"])))
                self._print(f"  {what:<6} {plain(fields)}")

    def _ready(self, event: Document) -> None:
        if not event["refused"]:
            self._print(f"[green]ready[/] as node {plain(event['node'])}; save a file to reload")
        for one in event["refused"]:
            self._print(
                f"[red]refused[/] {one['name']} {one['version']}: {plain(one['refusal'])};"
                " raise the version in @capability, here and in the workflow"
            )

    def _changed(self, event: Document) -> None:
        self._print(f"[cyan]changed[/] {plain(', '.join(event['paths']))}")

    def _broken(self, event: Document) -> None:
        self._print(f"[red]broken[/] {plain(event['message'])}")
        if event["old_agent_goes_on"]:
            self._print("  the agent goes on with the code before")

    def _agent_ended(self, event: Document) -> None:
        self._print(f"[red]ended[/] {plain(event['message'])}")
        self._print("  save a file to start it again")

    def _attempt_started(self, event: Document) -> None:
        number = event["attempt_number"]
        self._print(f"[bold]{event['capability']}[/] attempt {number} {event['attempt_id']}")

    def _capability_output(self, event: Document) -> None:
        self._print(f"  | {plain(event['line'])}")

    def _attempt_ended(self, event: Document) -> None:
        colours = {"SUCCEEDED": "green", "FAILED": "red", "STOPPED": "yellow"}
        outcome = event["outcome"]
        used = (
            f"{event['duration_ms']} ms, CPU {event['cpu_time_ms']} ms,"
            f" {event['memory_bytes_max'] // 1024**2} MiB"
        )
        self._print(f"  [{colours[outcome]}]{outcome}[/] after {used}")
        if outcome == "FAILED":
            again = "may be tried again" if event["retryable"] else "final"
            self._print(f"  {event['reason']} ({again}): {plain(event['message'])}")


def _fields(schema: dict[str, Any]) -> list[str]:
    """Fields with their types; a question mark where one may be left out."""
    required = schema.get("required", [])
    return [
        f"{name}{'' if name in required else '?'}: {_type(one)}"
        for name, one in schema.get("properties", {}).items()
    ] or ["anything"]


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    return str(schema.get("type", schema.get("$ref", "anything").rpartition("/")[2]))
