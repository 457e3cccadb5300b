"""The page's side of the gateway: who may do what with a session, its files, its live stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from business_gateway.adapters.inbound.rest_security import CSRF_HEADER, SESSION_COOKIE
from business_gateway.core.console.errors import OperatorKeyRefusedError
from foundation.errors import UnavailableError
from tests.integration.business_gateway.gateway import (
    API_KEY,
    OPERATOR_KEY,
    Client,
    Running,
    zip_bytes,
)

SESSION = "/console/api/session"
NODES = "/console/api/rpc/NodeAdminService/ListNodes"


class Tab:
    """A browser's tab: it has cookies and no key, and knows the CSRF token of its session."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.csrf = ""
        self.cookie = ""

    async def sign_in(self, key: str) -> tuple[int, dict[str, Any]]:
        async with self.http.post(SESSION, json={"key": key}, headers=self._headers()) as answer:
            document = await answer.json(content_type=None)
            if answer.status == 200:
                self.csrf = document["csrf_token"]
                self.cookie = answer.cookies[SESSION_COOKIE].value
            return answer.status, dict(document)

    async def call(
        self, method: str, path: str, *, csrf: bool = True, **options: Any
    ) -> tuple[int, Any]:
        headers = {**self._headers(), **options.pop("headers", {})}
        if csrf:
            headers[CSRF_HEADER] = self.csrf
        async with self.http.request(method, path, headers=headers, **options) as answer:
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, await answer.json(content_type=None) if is_json else None

    def _headers(self) -> dict[str, str]:
        # The cookie is for secure origins, which a browser takes 127.0.0.1 for and this client not.
        return {"Cookie": f"{SESSION_COOKIE}={self.cookie}"} if self.cookie else {}


@pytest.fixture
async def tab(client: Client) -> AsyncIterator[Tab]:
    async with aiohttp.ClientSession(client.base_url) as http:
        yield Tab(http)


async def test_a_client_s_session_is_as_good_as_its_key(running: Running, tab: Tab) -> None:
    """Signed in by key, a tab uploads, orders and reads; what changes something needs the token."""
    assert (await tab.call("GET", "/api/v1/orders"))[0] == 401
    status, session = await tab.sign_in(API_KEY)
    assert (status, session["client"], session["operator"]) == (200, True, False)
    upload = "/api/v1/assets/content?name=a.zip"
    status, problem = await tab.call("POST", upload, data=zip_bytes(), csrf=False)
    assert (status, problem["reason"]) == (403, "SESSION_FORBIDDEN")
    status, asset = await tab.call("POST", upload, data=zip_bytes())
    assert status == 201
    body = {
        "name": "Photos",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": asset["asset_id"],
    }
    headers = {"Idempotency-Key": "k"}
    status, order = await tab.call("POST", "/api/v1/orders", json=body, headers=headers)
    assert status == 202
    status, page = await tab.call("GET", "/api/v1/orders")
    assert [one["order_id"] for one in page["orders"]] == [order["order_id"]]


async def test_the_cookie_is_kept_from_scripts_and_other_sites(client: Client, tab: Tab) -> None:
    """HttpOnly, Secure, SameSite=Strict, host only; the key itself is not readable in it."""
    async with tab.http.post(SESSION, json={"key": API_KEY}) as answer:
        cookie = answer.headers["Set-Cookie"]
    for flag in ("HttpOnly", "Secure", "SameSite=strict", "Path=/", "__Host-"):
        assert flag in cookie
    assert "Domain" not in cookie
    assert API_KEY not in cookie
    headers = {"Sec-Fetch-Site": "cross-site"}
    async with tab.http.post(SESSION, json={"key": API_KEY}, headers=headers) as answer:
        assert answer.status == 403


async def test_a_strange_cookie_is_nobody_s(tab: Tab) -> None:
    """A damaged or foreign cookie is no session, and no error of the server."""
    for cookie in ("x", "x" * 5_000, "AQAAAAFC", "é"):
        tab.cookie = cookie
        assert await tab.call("GET", SESSION) == (200, {"client": False, "operator": False})
        for path in ("/api/v1/orders", "/console/api/queues", "/console/api/stream"):
            assert (await tab.call("GET", path))[0] == 401


async def test_signing_out_forgets_the_session(client: Client, tab: Tab) -> None:
    """The cookie is taken back; another site cannot ask for it without the token."""
    await tab.sign_in(API_KEY)
    assert (await tab.call("DELETE", SESSION, csrf=False))[0] == 403
    headers = {"Cookie": f"{SESSION_COOKIE}={tab.cookie}", CSRF_HEADER: tab.csrf}
    async with tab.http.delete(SESSION, headers=headers) as answer:
        assert answer.status == 204
        assert "Max-Age=0" in answer.headers["Set-Cookie"]


async def test_a_key_of_nobody_is_refused(tab: Tab) -> None:
    """Neither a client's nor an operator's: 401, and no cookie; nor is a strange text one."""
    for key in ("tdp_key_unheard-of", "é", "a\nb"):
        status, problem = await tab.sign_in(key)
        assert (status, problem["reason"]) == (401, "CREDENTIAL_REFUSED"), key
    assert not tab.cookie


async def test_an_operator_reads_orders_and_calls_the_platform_in_their_own_name(
    running: Running, tab: Tab
) -> None:
    """An operator's session changes no order; its key goes with each call to the platform."""
    order = await running.client.order("k1")
    await tab.sign_in(OPERATOR_KEY)
    path = f"/api/v1/orders/{order['order_id']}"
    assert (await tab.call("GET", path))[0] == 200
    headers = {"Idempotency-Key": "c1"}
    status, problem = await tab.call("POST", f"{path}/cancel", json={}, headers=headers)
    assert (status, problem["reason"]) == (403, "SESSION_FORBIDDEN")
    assert (await tab.call("POST", NODES, json={"page_size": 5}, csrf=False))[0] == 403
    assert await tab.call("POST", NODES, json={"page_size": 5}) == (200, {"nodes": []})
    assert running.platform.desk.calls == [
        ("NodeAdminService/ListNodes", {"page_size": 5}, OPERATOR_KEY)
    ]


async def test_a_client_does_not_see_the_platform(running: Running, tab: Tab) -> None:
    """Without an operator's key no RPC is called; adding it keeps the client's identity."""
    await tab.sign_in(API_KEY)
    status, problem = await tab.call("POST", NODES, json={})
    assert (status, problem["reason"]) == (403, "SESSION_FORBIDDEN")
    assert running.platform.desk.calls == []
    _, session = await tab.sign_in(OPERATOR_KEY)
    assert (session["client"], session["operator"]) == (True, True)
    assert (await tab.call("POST", NODES, json={}))[0] == 200


async def test_a_withdrawn_operator_s_key_is_no_end_of_the_session(
    running: Running, tab: Tab
) -> None:
    """What the platform refuses is told as such: 403, while 401 would mean to sign in again."""
    await tab.sign_in(OPERATOR_KEY)
    running.platform.desk.failure = OperatorKeyRefusedError("withdrawn")
    status, problem = await tab.call("POST", NODES, json={})
    assert (status, problem["reason"]) == (403, "OPERATOR_KEY_REFUSED")


async def test_an_order_is_shown_with_what_the_platform_knows(running: Running, tab: Tab) -> None:
    """Versions are there from the start; the platform's silence is said, not raised."""
    order = await running.client.order("k1")
    await tab.sign_in(API_KEY)
    path = f"/console/api/orders/{order['order_id']}/platform"
    status, found = await tab.call("GET", path)
    assert (status, found["known"]) == (200, False)
    assert [one["version"] for one in found["changes"]] == [1]
    await running.database.fetch(
        "update orders set task_id = order_id, execution_id = order_id, run = 1"
    )
    assert (await tab.call("GET", path))[1]["task"] == {"task_id": order["order_id"]}
    running.platform.desk.failure = UnavailableError("it is away")
    _, found = await tab.call("GET", path)
    assert (found["known"], found["problem"]) == (False, "it is away")
    assert (await tab.call("GET", path.replace(order["order_id"], "nonsense")))[0] == 422


async def test_queues_and_callbacks_are_counted(running: Running, tab: Tab) -> None:
    """A command that waits is counted by its status; a dead one is listed with its error."""
    order = await running.client.order("k1")
    await tab.sign_in(API_KEY)
    _, queues = await tab.call("GET", "/console/api/queues")
    assert [(one["status"], one["command_count"]) for one in queues["commands"]] == [("PENDING", 1)]
    await running.database.fetch("update command_outbox set status = 'DEAD', last_error = 'no'")
    _, queues = await tab.call("GET", "/console/api/queues")
    dead = [(one["order_id"], one["kind"], one["last_error"]) for one in queues["dead"]]
    assert dead == [(order["order_id"], "SUBMIT", "no")]
    _, page = await tab.call("GET", "/console/api/callbacks")
    assert page == {"callbacks": [], "next_before": ""}


async def test_one_stream_tells_of_every_order(running: Running, tab: Tab) -> None:
    """It greets, then carries each order that changes, whichever it is."""
    await tab.sign_in(API_KEY)
    headers = {"Cookie": f"{SESSION_COOKIE}={tab.cookie}"}
    async with asyncio.timeout(20), tab.http.get("/console/api/stream", headers=headers) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = answer.content
        while await lines.readline() != b"event: hello\n":
            pass
        orders = {(await running.client.order(key))["order_id"] for key in ("k1", "k2")}
        while orders:
            line = await lines.readline()
            orders -= {one for one in orders if one.encode() in line}


async def test_the_page_s_files_allow_nothing_from_elsewhere(client: Client) -> None:
    """A strict policy, and the page itself at every path that is no file."""
    async with client.session.get("/console/orders/some") as page:
        policy = page.headers["Content-Security-Policy"]
        assert page.status == 200, "the page's packages are missing: run make setup"
        assert '<div id="app">' in await page.text()
        etag = page.headers["ETag"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "'sha256-" in policy
    assert "http" not in policy
    async with client.session.get("/console/", headers={"If-None-Match": etag}) as page:
        assert page.status == 304
    async with client.session.get("/console/main.js") as script:
        assert script.headers["Content-Type"].startswith("text/javascript")
    for missing in ("/console/none.js", "/console/..%2f__init__.py"):
        async with client.session.get(missing) as answer:
            assert answer.status == 404
    async with client.session.get("/") as page:
        assert page.url.path == "/console/"
