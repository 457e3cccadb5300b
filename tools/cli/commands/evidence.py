"""`tdp evidence`: what proves where an order is, hop by hop."""

from typing import Annotated

import typer

from tools.cli import journey
from tools.cli.connection import Connection
from tools.cli.gateway_client import GatewayClient
from tools.cli.ladder import render_ladder
from tools.cli.options import Json, run
from tools.cli.output import show

app = typer.Typer(rich_markup_mode="rich")


@app.command()
def evidence(
    order_id: Annotated[str, typer.Argument(help="The order's id.")], *, as_json: Json = False
) -> None:
    """Show the ladder of an order: ten hops, the durable fact of each, and what was disturbed.

    The first rung that is not durable is where the work stands; the verdict says whose move it is.

    Examples:
      tdp evidence 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
      tdp evidence 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f --json | jq .verdict
    """
    run(_evidence(order_id, as_json=as_json))


async def _evidence(order_id: str, *, as_json: bool) -> None:
    async with GatewayClient(*Connection.find().gateway()) as client:
        ladder = await journey.get_evidence(client, order_id)
    show(ladder, as_json=as_json, render=lambda console: render_ladder(console, ladder))
