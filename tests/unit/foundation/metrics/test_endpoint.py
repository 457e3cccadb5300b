"""The endpoint that Prometheus scrapes, over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from foundation.clock import ManualClock
from foundation.errors import UnavailableError
from foundation.metrics.endpoint import MetricsEndpoint
from foundation.metrics.refreshing import Refreshed


async def page() -> bytes:
    return b"tdp_ok 1\n"


async def no_page() -> bytes:
    raise UnavailableError("the database is away")


@asynccontextmanager
async def serving(render: Callable[[], Awaitable[bytes]]) -> AsyncIterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint("127.0.0.1", 0, render)
    await endpoint.start()
    running = asyncio.create_task(endpoint.run())
    try:
        yield endpoint
    finally:
        await endpoint.stop()
        await endpoint.stop()
        await running


async def ask(endpoint: MetricsEndpoint, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_scrape_is_answered() -> None:
    """GET /metrics answers the page with the type that Prometheus reads, queries ignored."""
    async with serving(page) as endpoint:
        for path in (b"/metrics", b"/metrics?x=1"):
            answer = await ask(endpoint, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b"text/plain; version=" in head
            assert body == b"tdp_ok 1\n"


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"x" * 9_000 + b"\r\n\r\n", b""),
    ],
)
async def test_what_else_is_asked_is_refused(request_head: bytes, status: bytes) -> None:
    """Other paths and methods are refused, and an endless head is not read."""
    async with serving(page) as endpoint:
        answer = await ask(endpoint, request_head)
    assert answer.partition(b" ")[2][:3] == status


async def test_a_database_that_is_away_fails_the_scrape_only() -> None:
    """Where the facts cannot be read the target shows as down, and the process goes on."""
    async with serving(no_page) as endpoint:
        answer = await ask(endpoint, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503")
        assert answer.endswith(b"UNAVAILABLE\n")


async def test_facts_are_read_once_in_a_while() -> None:
    """Scrapes that come together share one reading; it is repeated when it is too old."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    readings = 0

    async def read() -> None:
        nonlocal readings
        readings += 1

    facts = Refreshed(read, clock, 15.0)
    await asyncio.gather(*(facts.ensure() for _ in range(5)))
    clock.advance(14.9)
    await facts.ensure()
    assert readings == 1
    clock.advance(0.2)
    await facts.ensure()
    assert readings == 2


async def test_a_reading_that_failed_is_repeated() -> None:
    """A failure is told to the scrape that met it, and the next one asks again."""
    outcomes: list[Exception | None] = [UnavailableError("away"), None]

    async def read() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    facts = Refreshed(read, ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), 15.0)
    with pytest.raises(UnavailableError):
        await facts.ensure()
    await facts.ensure()
    assert outcomes == []
