"""The ladder of evidence for people: ten rungs, what proves each, and the verdict."""

from datetime import datetime
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from tools.cli.output import plain

_MARKS: Final = {
    "DURABLE": "[green]● durable[/]",
    "CURRENT": "[bold cyan]▶ here[/]",
    "AHEAD": "[dim]○ ahead[/]",
    "NOT_APPLICABLE": "[dim]– not needed[/]",
    "UNKNOWN": "[yellow]? unknown[/]",
}


def render_ladder(console: Console, ladder: dict[str, Any]) -> None:
    """Write the ladder as a table, with the verdict below it."""
    rows = Table(
        title=f"Evidence of order {ladder['order_id']}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_lines=True,
        pad_edge=False,
    )
    rows.add_column("#", justify="right", style="bold")
    rows.add_column("hop and state", no_wrap=True)
    rows.add_column("identity, and where it is durable", overflow="fold", ratio=1)
    rows.add_column("when (UTC), by whom", no_wrap=True)
    for rung in ladder["rungs"]:
        rows.add_row(
            str(rung["hop"]),
            f"{plain(rung['title'])}\n{_MARKS.get(rung['state'], plain(rung['state']))}",
            "\n".join(_proof(rung)),
            _when(rung),
        )
    console.print(rows)
    console.print(f"[bold]Verdict:[/] {plain(ladder['verdict'])}")


def _proof(rung: dict[str, Any]) -> list[str]:
    lines = [plain(part) for part in _parts(rung.get("identity", ""))]
    place = " · ".join(plain(rung[key]) for key in ("store", "location", "record") if rung.get(key))
    if place:
        lines.append(f"[dim]{place}[/]")
    if rung.get("summary"):
        lines.append(f"[italic]{plain(rung['summary'])}[/]")
    lines += [_disturbance(one) for one in rung.get("disturbances", ())]
    return lines


def _parts(identity: str) -> list[str]:
    return [part.strip() for part in identity.split(",") if part.strip()]


def _disturbance(disturbance: dict[str, Any]) -> str:
    time = _clock(disturbance.get("occurred_at"))
    said = f"[yellow]↺ {plain(disturbance['kind'])}[/] {plain(disturbance['description'])}"
    return f"{said} [dim]{time}[/]" if time else said


def _when(rung: dict[str, Any]) -> str:
    time = _clock(rung.get("durable_at"))
    actor = plain(rung.get("actor", ""))
    return f"{time or '–'}\n[dim]{actor}[/]" if actor else time or "–"


def _clock(text: str | None) -> str:
    if not text:
        return ""
    time = datetime.fromisoformat(text)
    return f"{time:%m-%d %H:%M:%S}.{time.microsecond // 1000:03d}"
