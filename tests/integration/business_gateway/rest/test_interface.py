"""What holds for every route: keys, problems that open, bounds, and the OpenAPI document."""

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from business_gateway.adapters.inbound.rest_problems import known_problems
from business_gateway.core.orders.evidence import PlatformEvidence, Rung, RungState
from foundation.errors import UnavailableError
from tests.integration.business_gateway.gateway import Client, Running

NO_ID = "0190a000-0000-7000-8000-000000000001"


async def _operations(client: Client) -> list[tuple[str, str, dict[str, Any]]]:
    _, document, _ = await client.call("GET", "/openapi.json")
    return [
        (method.upper(), path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Basic abc", "Bearer " + "x" * 600])
async def test_no_route_answers_without_a_key(client: Client, authorization: str) -> None:
    """Every documented route is 401 for a missing, wrong, strange or huge credential."""
    headers = {"Authorization": authorization, "Idempotency-Key": "k"} if authorization else {}
    async with aiohttp.ClientSession(client.base_url, headers=headers) as stranger:
        for method, path, _ in await _operations(client):
            filled = re.sub(r"\{\w+\}", NO_ID, path) + "?name=a"
            async with stranger.request(method, filled, json={}) as answer:
                problem = await answer.json(content_type=None)
                assert (answer.status, problem["reason"]) == (401, "CREDENTIAL_REFUSED"), path
                assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_the_document_lists_every_status(client: Client) -> None:
    """OpenAPI 3.1: each operation has a summary, a success, and its problems as problem+json."""
    status, document, _ = await client.call("GET", "/openapi.json")
    assert (status, document["openapi"][:4]) == (200, "3.1.")
    operations = await _operations(client)
    assert len(operations) >= 13
    for method, path, operation in operations:
        statuses = set(operation["responses"])
        assert operation["summary"], path
        assert statuses & {"200", "201", "202", "307"}, path
        assert {"401", "500", "503"} <= statuses, path
        assert ("404" in statuses) == ("{" in path), path
        if method == "POST" and "orders" in path:
            assert {"400", "409", "422"} <= statuses, path
        for code, answer in operation["responses"].items():
            if int(code) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (path, code)
    assert "ProblemDocument" in document["components"]["schemas"]
    assert "HTTPBearer" in document["components"]["securitySchemes"]


async def test_every_reference_of_the_document_resolves(client: Client) -> None:
    """No schema that the document points to is missing."""
    _, document, _ = await client.call("GET", "/openapi.json")
    schemas = document["components"]["schemas"]
    found = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert found
    assert found <= set(schemas)


async def test_a_problem_s_type_can_be_opened(client: Client) -> None:
    """The type of a problem is a page that explains it; every kind of error has one."""
    _, problem, headers = await client.call("GET", f"/api/v1/orders/{NO_ID}")
    assert headers["Content-Type"] == "application/problem+json"
    assert problem["instance"] == f"/api/v1/orders/{NO_ID}"
    async with client.session.get(problem["type"]) as page:
        assert page.status == 200
        assert "ORDER_NOT_FOUND" in await page.text()
    assert (await client.call("GET", "/problems/unheard-of"))[0] == 404
    for slug, kind in known_problems().items():
        assert kind.__doc__, slug


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/api/v1/nothing", 404, "ROUTE_NOT_FOUND"),
        ("DELETE", "/api/v1/orders", 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_strange_requests_are_problems_too(
    client: Client, method: str, path: str, status: int, reason: str
) -> None:
    """Unknown paths and methods are answered in the same shape."""
    found, problem, _ = await client.call(method, path)
    assert (found, problem["reason"]) == (status, reason)


async def test_a_body_that_is_no_json_is_malformed(client: Client) -> None:
    """Broken JSON is 400; JSON of the wrong shape is 422."""
    headers = {"Content-Type": "application/json"}
    for text, expected in ((b"{", 400), (b"[]", 422), (b"null", 422)):
        status, problem, _ = await client.call("POST", "/api/v1/assets", data=text, headers=headers)
        assert status == expected, (text, problem)


async def test_bodies_are_bounded_announced_or_not(client: Client) -> None:
    """Over 64 KiB of JSON is 413, with Content-Length and in chunks."""
    headers = {"Content-Type": "application/json"}
    large = b'{"name": "' + b"a" * 70_000 + b'", "size_bytes": 1}'

    async def chunks() -> AsyncIterator[bytes]:
        yield large[:40_000]
        yield large[40_000:]

    for body in (large, chunks()):
        status, problem, _ = await client.call("POST", "/api/v1/assets", data=body, headers=headers)
        assert (status, problem["reason"]) == (413, "BODY_TOO_LARGE")


async def test_evidence_has_ten_rungs_whatever_the_platform_says(running: Running) -> None:
    """Own rungs and the platform's make ten; without it they are unknown and the order is safe."""
    order = await running.client.order("k1")
    path = f"/api/v1/orders/{order['order_id']}/evidence"
    _, ladder, _ = await running.client.call("GET", path)
    states = [(one["hop"], one["state"]) for one in ladder["rungs"]]
    assert states[:3] == [(1, "DURABLE"), (2, "CURRENT"), (3, "AHEAD")]
    assert [hop for hop, _ in states] == list(range(1, 11))
    running.platform.evidence = PlatformEvidence(
        tuple(
            Rung(hop, "T", RungState.DURABLE if hop < 5 else RungState.AHEAD, "S", "L")
            for hop in range(2, 10)
        ),
        "Under way at the platform.",
    )
    _, ladder, _ = await running.client.call("GET", path)
    assert [one["state"] for one in ladder["rungs"]][3:6] == ["DURABLE", "CURRENT", "AHEAD"]
    assert ladder["verdict"] == "Under way at the platform."
    running.platform.failure = UnavailableError("it is away")
    _, ladder, _ = await running.client.call("GET", path)
    assert (ladder["platform_reached"], ladder["rungs"][4]["state"]) == (False, "UNKNOWN")
    assert "it is away" in ladder["verdict"]


async def test_the_process_says_that_it_lives(client: Client) -> None:
    """The health route needs no key."""
    assert (await client.call("GET", "/healthz"))[0] == 200
