"""Orders over REST, with a real database."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from business_gateway import limits
from tests.fixtures.databases import FreshDatabase
from tests.integration.business_gateway.gateway import Client, Running, serving
from tools.dev_stack import ObjectStoreAccess

ORDERS = "/api/v1/orders"
NO_ID = "0190a000-0000-7000-8000-000000000001"


async def _rows(running: Running, table: str) -> list[dict[str, Any]]:
    return [dict(row) for row in await running.database.fetch(f"select * from {table}")]  # noqa: S608 - a table's name of ours


async def _set(running: Running, order_id: str, assignments: str) -> None:
    await running.database.fetch(
        f"update orders set {assignments} where order_id = $1",  # noqa: S608 - text of this file
        order_id,
    )


async def test_an_order_is_stored_with_its_command(running: Running) -> None:
    """202 with Location and ETag; order, SUBMIT, first change and record are one transaction."""
    asset_id = await running.client.ready_asset()
    body = {
        "name": "  婚礼照片  ",
        "processing_mode": "ARCHIVE_CLEAN_THEN_WATERMARK",
        "watermark_text": " 水印 ",
        "source_asset_id": asset_id,
    }
    status, order, headers = await running.client.call("POST", ORDERS, key="k1", json=body)
    assert (status, order["status"], order["name"]) == (202, "SUBMITTING", "婚礼照片")
    assert headers["Location"] == f"{ORDERS}/{order['order_id']}"
    assert (headers["ETag"], headers["Idempotency-Replayed"]) == ('"1"', "false")
    [command] = await _rows(running, "command_outbox")
    assert (command["kind"], command["ordering_key"]) == ("SUBMIT", order["order_id"])
    assert json.loads(command["payload"]) == {
        "order_id": order["order_id"],
        "name": "婚礼照片",
        "workflow_name": "archive-clean-then-watermark",
        "workflow_version": "1",
        "input": {
            "archive_ref": f"asset:{asset_id}",
            "collection_ref": f"collection:{order['order_id']}",
            "watermark_text": "水印",
        },
    }
    assert [one["kind"] for one in await _rows(running, "order_changes")] == ["CREATED"]
    assert running.platform.wakes == 1


async def test_a_repeat_is_answered_as_the_first_time(running: Running) -> None:
    """Same key and body: the very same answer, even after the order moved on; one order only."""
    body = {
        "name": "Photos",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": await running.client.ready_asset(),
    }
    first = await running.client.call("POST", ORDERS, key="k1", json=body)
    await _set(running, first[1]["order_id"], "name = 'changed', version = version + 1")
    again = await running.client.call("POST", ORDERS, key="k1", json=body)
    assert again[:2] == first[:2]
    assert again[2]["Idempotency-Replayed"] == "true"
    assert len(await _rows(running, "orders")) == 1
    assert len(await _rows(running, "command_outbox")) == 1


async def test_a_key_reused_for_another_order_is_refused(running: Running) -> None:
    """Another body under the key is 422 and stores nothing; under another key it works."""
    first = await running.client.order("k1", name="A")
    body = {
        "name": "B",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": first["source_asset_id"],
    }
    status, problem, _ = await running.client.call("POST", ORDERS, key="k1", json=body)
    assert (status, problem["reason"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert problem["metadata"]["existing_id"] == first["order_id"]
    assert len(await _rows(running, "orders")) == 1
    assert (await running.client.call("POST", ORDERS, key="k2", json=body))[0] == 202


async def test_a_request_in_progress_is_told_to_others_at_once(running: Running) -> None:
    """While one transaction holds the key, a second request gets 409 with Retry-After."""
    asset_id = await running.client.ready_asset()
    body = {
        "name": "A",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": asset_id,
    }
    async with running.database.transaction() as connection:
        await connection.execute(
            "select pg_advisory_xact_lock(hashtextextended($1, 0))",
            "client\x1fCreateOrder\x1fk1",
        )
        status, problem, headers = await running.client.call("POST", ORDERS, key="k1", json=body)
        assert (status, problem["reason"]) == (409, "REQUEST_IN_PROGRESS")
        assert int(headers["Retry-After"]) >= 1
    assert (await running.client.call("POST", ORDERS, key="k1", json=body))[0] == 202


async def test_the_same_request_many_times_at_once_makes_one_order(running: Running) -> None:
    """Concurrent repeats are answered 202 with one order, or told to come back; never doubled."""
    body = {
        "name": "A",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": await running.client.ready_asset(),
    }
    answers = await asyncio.gather(
        *[running.client.call("POST", ORDERS, key="k1", json=body) for _ in range(20)]
    )
    assert {one[0] for one in answers} <= {202, 409}
    assert len({one[1]["order_id"] for one in answers if one[0] == 202}) == 1
    assert len(await _rows(running, "orders")) == 1
    assert len(await _rows(running, "command_outbox")) == 1


async def test_a_record_that_appears_under_our_hands_is_answered(running: Running) -> None:
    """Where the first request's record shows only when ours is inserted, its answer is given."""
    body = {
        "name": "A",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": await running.client.ready_asset(),
    }
    await running.client.call("POST", ORDERS, key="k1", json=body)
    async with running.database.transaction() as first:
        await first.execute(
            "insert into idempotency_records select principal, operation, 'k2', request_sha256,"
            " order_id, answer from idempotency_records"
        )
        second = asyncio.create_task(
            running.client.call("POST", ORDERS, key="k2", json=body), name="second"
        )
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
        while not await running.database.fetch(waiting):
            assert not second.done()
    status, _, headers = await second
    assert (status, headers["Idempotency-Replayed"]) == (202, "true")
    assert len(await _rows(running, "orders")) == 1


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": " "}, "/name"),
        ({"name": "é" * 201}, "/name"),
        ({"processing_mode": "BOTH"}, "/processing_mode"),
        ({"watermark_text": "no"}, "/watermark_text"),
        ({"processing_mode": "ARCHIVE_CLEAN_THEN_WATERMARK"}, "/watermark_text"),
        (
            {"processing_mode": "ARCHIVE_CLEAN_THEN_WATERMARK", "watermark_text": "水" * 101},
            "/watermark_text",
        ),
        ({"source_asset_id": "nonsense"}, "/source_asset_id"),
        ({"surprise": "1"}, "/surprise"),
    ],
)
async def test_a_wrong_order_names_its_field_and_leaves_nothing(
    running: Running, changes: dict[str, str], pointer: str
) -> None:
    """Each wrong field is a 422 with a pointer; no order, command or record is stored."""
    body = {
        "name": "A",
        "processing_mode": "ARCHIVE_CLEAN_ONLY",
        "source_asset_id": NO_ID,
        **changes,
    }
    status, problem, _ = await running.client.call("POST", ORDERS, key="k1", json=body)
    assert (status, [one["pointer"] for one in problem["errors"]]) == (422, [pointer])
    for table in ("orders", "command_outbox", "idempotency_records"):
        assert await _rows(running, table) == []


async def test_an_asset_that_is_not_ready_cannot_be_ordered(running: Running) -> None:
    """An unknown and an uploading asset are 409, and the key stays free for the right request."""
    announcement = {"name": "a", "size_bytes": 10}
    _, announced, _ = await running.client.call("POST", "/api/v1/assets", json=announcement)
    body = {"name": "A", "processing_mode": "ARCHIVE_CLEAN_ONLY"}
    for asset_id in (NO_ID, announced["asset"]["asset_id"]):
        status, problem, _ = await running.client.call(
            "POST", ORDERS, key="k1", json={**body, "source_asset_id": asset_id}
        )
        assert (status, problem["reason"]) == (409, "SOURCE_ASSET_NOT_READY")
    assert await _rows(running, "idempotency_records") == []
    ready = {**body, "source_asset_id": await running.client.ready_asset()}
    assert (await running.client.call("POST", ORDERS, key="k1", json=ready))[0] == 202


@pytest.mark.parametrize("action", ["", f"/{NO_ID}/cancel", f"/{NO_ID}/rerun"])
async def test_a_change_needs_its_key(client: Client, action: str) -> None:
    """Without Idempotency-Key it is 400; with a malformed one too."""
    body = {} if action else {"name": "A", "processing_mode": "X", "source_asset_id": NO_ID}
    status, problem, _ = await client.call("POST", ORDERS + action, json=body)
    assert (status, problem["reason"]) == (400, "IDEMPOTENCY_KEY_MISSING")
    status, problem, _ = await client.call("POST", ORDERS + action, key="k" * 201, json=body)
    assert (status, problem["reason"]) == (400, "IDEMPOTENCY_KEY_MALFORMED")


async def test_an_order_never_claimed_is_withdrawn(running: Running) -> None:
    """Before anybody claimed SUBMIT, cancelling is local: CANCELED, and nothing will be sent."""
    order = await running.client.order("k1")
    path = f"{ORDERS}/{order['order_id']}/cancel"
    status, canceled, _ = await running.client.call("POST", path, key="c1", json={"reason": "x"})
    assert (status, canceled["status"]) == (200, "CANCELED")
    assert canceled["completed_at"] is not None
    assert await _rows(running, "command_outbox") == []
    kinds = [one["kind"] for one in await _rows(running, "order_changes")]
    assert kinds == ["CREATED", "WITHDRAWN"]
    assert (await running.client.call("POST", path, key="c1", json={"reason": "x"}))[1] == canceled


async def test_an_order_on_its_way_is_cancelled_by_command(running: Running) -> None:
    """Once SUBMIT was claimed, the platform may know of it: CANCELING, with a CANCEL behind."""
    order = await running.client.order("k1")
    await running.database.fetch(
        "update command_outbox set status = 'PUBLISHING', claim_id = gen_random_uuid()"
    )
    path = f"{ORDERS}/{order['order_id']}/cancel"
    status, canceling, _ = await running.client.call("POST", path, key="c1", json={"reason": "why"})
    assert (status, canceling["status"], canceling["version"]) == (202, "CANCELING", 2)
    submit, cancel = sorted(await _rows(running, "command_outbox"), key=lambda row: row["position"])
    assert (submit["kind"], cancel["kind"]) == ("SUBMIT", "CANCEL")
    assert json.loads(cancel["payload"]) == {
        "order_id": order["order_id"],
        "run": 0,
        "reason": "why",
    }
    # Another wish to cancel changes nothing more.
    status, again, _ = await running.client.call("POST", path, key="c2")
    assert (status, again["version"]) == (202, 2)
    assert len(await _rows(running, "command_outbox")) == 2


async def test_the_pump_s_claim_and_a_withdrawal_exclude_each_other(running: Running) -> None:
    """A cancel that meets a claim in progress waits for it, and then does not withdraw."""
    order = await running.client.order("k1")
    path = f"{ORDERS}/{order['order_id']}/cancel"
    async with running.database.transaction() as claiming:
        await claiming.execute(
            "update command_outbox set status = 'PUBLISHING', claim_id = gen_random_uuid()"
        )
        cancelling = asyncio.create_task(
            running.client.call("POST", path, key="c1"), name="cancelling"
        )
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock'"
        while not await running.database.fetch(waiting):
            assert not cancelling.done()
    status, canceling, _ = await cancelling
    assert (status, canceling["status"]) == (202, "CANCELING")
    assert len(await _rows(running, "command_outbox")) == 2


async def test_an_order_finally_refused_is_closed_here(running: Running) -> None:
    """After a DEAD SUBMIT the order needs attention, and cancelling it completes locally."""
    order = await running.client.order("k1")
    await running.database.fetch(
        "update command_outbox set status = 'DEAD', claim_id = gen_random_uuid()"
    )
    await _set(
        running,
        order["order_id"],
        "status = 'NEEDS_ATTENTION', completed_at = tdp_now(), version = version + 1",
    )
    path = f"{ORDERS}/{order['order_id']}/cancel"
    status, closed, _ = await running.client.call("POST", path, key="c1")
    assert (status, closed["status"], closed["version"]) == (200, "CANCELED", 3)
    assert len(await _rows(running, "command_outbox")) == 1


async def _finished(running: Running, key: str = "k1") -> dict[str, Any]:
    order = await running.client.order(key)
    await running.database.fetch(
        "update command_outbox set status = 'PUBLISHED', claim_id = gen_random_uuid(),"
        " published_at = tdp_now()"
    )
    await _set(
        running,
        order["order_id"],
        "status = 'COMPLETED', completed_at = tdp_now(), version = version + 1, run = 1,"
        " task_id = gen_random_uuid(), execution_id = gen_random_uuid(), progress_percent = 100,"
        " last_projected_sequence = 5, last_contiguous_sequence = 5",
    )
    return order


async def test_a_finished_order_cannot_be_cancelled_any_more(running: Running) -> None:
    """It is answered as it is, without a new version or command."""
    order = await _finished(running)
    path = f"{ORDERS}/{order['order_id']}/cancel"
    status, same, _ = await running.client.call("POST", path, key="c1")
    assert (status, same["status"], same["version"]) == (200, "COMPLETED", 2)
    assert len(await _rows(running, "command_outbox")) == 1


async def test_a_finished_order_runs_again(running: Running) -> None:
    """Rerun: SUBMITTING again, progress from 0, the old ids kept, a RERUN that names its run."""
    order = await _finished(running)
    path = f"{ORDERS}/{order['order_id']}/rerun"
    body = {"mode": "FROM_SCRATCH", "reason": "again"}
    status, again, _ = await running.client.call("POST", path, key="r1", json=body)
    assert (status, again["status"], again["progress_percent"]) == (202, "SUBMITTING", 0)
    assert (again["run"], again["completed_at"]) == (1, None)
    rerun = max(await _rows(running, "command_outbox"), key=lambda row: row["position"])
    assert (rerun["kind"], json.loads(rerun["payload"])) == (
        "RERUN",
        {"order_id": order["order_id"], "run": 1, **body},
    )
    assert (await running.client.call("POST", path, key="r1", json=body))[1] == again


async def test_what_cannot_run_again_says_why(running: Running) -> None:
    """An order under way is 409, one never submitted too, an unknown mode is 422."""
    order = await running.client.order("k1")
    path = f"{ORDERS}/{order['order_id']}/rerun"
    status, problem, _ = await running.client.call("POST", path, key="r1")
    assert (status, problem["reason"]) == (409, "ORDER_NOT_FINISHED")
    await running.client.call("POST", f"{ORDERS}/{order['order_id']}/cancel", key="c1")
    status, problem, _ = await running.client.call("POST", path, key="r1")
    assert (status, problem["reason"]) == (409, "ORDER_NEVER_SUBMITTED")
    status, problem, _ = await running.client.call("POST", path, key="r1", json={"mode": "X"})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/mode")
    assert len(await _rows(running, "idempotency_records")) == 2


async def test_an_order_is_read_with_its_etag(running: Running) -> None:
    """If-None-Match answers 304 until the order has a new version."""
    order = await running.client.order("k1")
    path = f"{ORDERS}/{order['order_id']}"
    status, read, headers = await running.client.call("GET", path)
    assert (status, read) == (200, order)
    conditional = {"If-None-Match": headers["ETag"]}
    assert (await running.client.call("GET", path, headers=conditional))[:2] == (304, None)
    await _set(running, order["order_id"], "version = version + 1")
    assert (await running.client.call("GET", path, headers=conditional))[0] == 200


async def test_orders_come_in_pages_newest_first(running: Running) -> None:
    """Cursors lead through all orders, with and without the filter; strange ones are refused."""
    asset_id = await running.client.ready_asset()
    made = [
        (await running.client.order(f"k{n}", source_asset_id=asset_id))["order_id"]
        for n in range(5)
    ]
    await running.client.call("POST", f"{ORDERS}/{made[2]}/cancel", key="c")
    seen, cursor = [], ""
    while True:
        query = f"?page_size=2&cursor={cursor}"
        _, page, _ = await running.client.call("GET", ORDERS + query)
        seen += [one["order_id"] for one in page["orders"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert seen == made[::-1]
    _, page, _ = await running.client.call("GET", f"{ORDERS}?status=CANCELED")
    assert [one["order_id"] for one in page["orders"]] == [made[2]]
    for query, status in (
        ("cursor=strange", 400),
        ("status=SHIPPED", 422),
        ("page_size=201", 422),
        ("page_size=x", 422),
    ):
        assert (await running.client.call("GET", f"{ORDERS}?{query}"))[0] == status
    _, first, _ = await running.client.call("GET", f"{ORDERS}?page_size=2")
    mixed = f"{ORDERS}?status=CANCELED&cursor={first['next_cursor']}"
    assert (await running.client.call("GET", mixed))[0] == 400


@pytest.mark.parametrize("path", ["", "/events", "/evidence", "/artifacts"])
async def test_an_unknown_order_is_not_found(client: Client, path: str) -> None:
    """Every route about an order says 404 for one that is not there, 422 for no id at all."""
    assert (await client.call("GET", f"{ORDERS}/{NO_ID}{path}"))[0] == 404
    assert (await client.call("GET", f"{ORDERS}/nonsense{path}"))[0] == 422
    for action in ("cancel", "rerun"):
        answer = await client.call("POST", f"{ORDERS}/{NO_ID}/{action}", key="k")
        assert (answer[0], answer[1]["reason"]) == (404, "ORDER_NOT_FOUND")


async def _events(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    block: dict[str, str] = {}
    async for line in answer.content:
        text = line.decode().rstrip("\n")
        if text and not text.startswith(":"):
            name, _, value = text.partition(": ")
            block[name] = value
        elif "data" in block:
            data = json.loads(block["data"])
            assert (block["event"], block["id"]) == ("order", str(data["version"]))
            found.append(data)
            block = {}
            if len(found) == count:
                break
    return found


async def test_a_stream_shows_every_version_as_it_comes(
    postgres_database: FreshDatabase,
    object_store: ObjectStoreAccess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins with the present state, then tells of each change, woken and not polled."""
    monkeypatch.setattr(limits, "STREAM_RECHECK_S", 3_600.0)
    async with serving(postgres_database, object_store) as running:
        order = await running.client.order("k1")
        path = f"{ORDERS}/{order['order_id']}"
        async with running.client.session.get(f"{path}/events") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            [first] = await _events(answer, 1)
            assert (first["status"], first["version"]) == ("SUBMITTING", 1)
            assert first["kind"] == "CREATED"
            await running.client.call("POST", f"{path}/cancel", key="c1")
            [second] = await _events(answer, 1)
            assert (second["status"], second["version"]) == ("CANCELED", 2)


async def test_a_stream_resumes_after_the_last_event(running: Running) -> None:
    """With Last-Event-ID exactly the later versions come; a strange id is refused."""
    order = await running.client.order("k1")
    for percent in (10, 20, 30):
        await _set(
            running, order["order_id"], f"progress_percent = {percent}, version = version + 1"
        )
    path = f"{ORDERS}/{order['order_id']}/events"
    async with running.client.session.get(path, headers={"Last-Event-ID": "2"}) as answer:
        events = await _events(answer, 2)
    assert [(one["version"], one["progress_percent"]) for one in events] == [(3, 20), (4, 30)]
    status, problem, _ = await running.client.call(
        "GET", path, headers={"Last-Event-ID": "yesterday"}
    )
    assert (status, problem["errors"][0]["pointer"]) == (422, "/Last-Event-ID")


async def test_streams_end_when_the_gateway_stops(running: Running) -> None:
    """A client that follows an order sees the end of the stream, and the stop does not hang."""
    order = await running.client.order("k1")
    path = f"{ORDERS}/{order['order_id']}/events"
    async with running.client.session.get(path) as answer:
        await _events(answer, 1)
        running.stop.make("an operator stops it")
        assert await answer.content.read() == b""
    assert running.gateway.changes.watched_count == 0
