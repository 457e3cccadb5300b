"""ListCallbacks and RedeliverCallbacks: what came of each callback, and doing it again."""

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import mutation_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import SECRET, Metadata, Replica
from tests.integration.control_plane.services.endpoint import http_endpoint
from tests.integration.control_plane.services.errors import refused, task_request

NEW_SECRET = b"the-new-secret-of-32-bytes-....."
DEAD, DELIVERED = pb.CALLBACK_STATUS_DEAD, pb.CALLBACK_STATUS_DELIVERED


async def _canceled_task(replica: Replica, key: Metadata, name: str = "k") -> str:
    made = await replica.tasks.CreateTask(task_request(name), metadata=key)
    await replica.tasks.CancelTask(
        pb.CancelTaskRequest(idempotency_key=f"c-{name}", task_id=made.task_id), metadata=key
    )
    return made.execution_id


async def _bury(replica: Replica, execution_id: str) -> None:
    """Make the first callback of an execution one that was given up."""
    await replica.plane.database.fetch(
        "update callback_deliveries set status = 'DEAD', published_at = null, attempts = 10 "
        "where execution_id = $1 and sequence = 1",
        execution_id,
    )


async def _listed(replica: Replica, key: Metadata, **asked: object) -> list[pb.Callback]:
    request = pb.ListCallbacksRequest(**asked)  # type: ignore[arg-type]
    return list((await replica.tasks.ListCallbacks(request, metadata=key)).callbacks)


async def _delivered(replica: Replica, key: Metadata, execution_id: str) -> list[pb.Callback]:
    """Wait until all of an execution's callbacks are marked as delivered; return them in order."""

    async def all_of_them() -> list[pb.Callback]:
        found = await _listed(replica, key, execution_id=execution_id)
        return found if {one.status for one in found} == {DELIVERED} else []

    return sorted(await eventually(all_of_them), key=lambda one: one.sequence)


async def test_the_log_tells_what_was_answered(replica: Replica) -> None:
    """A failure is kept with its answer; what succeeded at once needs no entry; pages join."""
    async with http_endpoint() as endpoint:
        endpoint.answers = [500]
        await replica.publish()
        _, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)
        await endpoint.until("execution.canceled")
        callbacks = await _delivered(replica, key, execution_id)
        first = await replica.tasks.ListCallbacks(
            pb.ListCallbacksRequest(execution_id=execution_id, page_size=1), metadata=key
        )
        rest = await _listed(
            replica, key, execution_id=execution_id, page_token=first.next_page_token
        )

    assert [one.kind for one in callbacks[0].log] == ["failed"]
    assert callbacks[0].log[0].detail.endswith("answered 500")
    assert callbacks[0].attempt_count == 1
    assert callbacks[0].event_type == "execution.created"
    assert callbacks[0].event_id == endpoint.events[0]["id"]
    assert not any(one.log for one in callbacks[1:])
    assert [one.sequence for one in (*first.callbacks, *rest)] == [
        one.sequence for one in reversed(callbacks)
    ]


async def test_a_dead_callback_is_found_and_delivered_again(replica: Replica) -> None:
    """A dry run counts the dead, the act sends the same event again, and a repetition does not."""
    async with http_endpoint() as endpoint:
        await replica.publish()
        application_id, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)
        await endpoint.until("execution.canceled")
        sent = len(await _delivered(replica, key, execution_id))
        await _bury(replica, execution_id)
        dead = await _listed(replica, key, status=DEAD)
        request = pb.RedeliverCallbacksRequest(
            idempotency_key="r", execution_id=execution_id, dry_run=True
        )
        counted = await replica.tasks.RedeliverCallbacks(request, metadata=key)
        request.dry_run = False
        again = await replica.tasks.RedeliverCallbacks(request, metadata=key)
        repeated = await replica.tasks.RedeliverCallbacks(request, metadata=key)
        await endpoint.until_count(sent + 1)
        callbacks = await _delivered(replica, key, execution_id)
        everything = await replica.tasks.RedeliverCallbacks(
            pb.RedeliverCallbacksRequest(
                idempotency_key="all", filter="status = CANCELED", include_delivered=True
            ),
            metadata=key,
        )
        await endpoint.until_count(2 * sent + 1)
        twice = await _delivered(replica, key, execution_id)

    assert [one.sequence for one in dead] == [1]
    assert (counted.matched_count, counted.changed_count) == (1, 0)
    assert (again.matched_count, again.changed_count, again.has_more) == (1, 1, False)
    assert repeated.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    assert repeated.changed_count == 1
    assert endpoint.events[sent]["id"] == endpoint.events[0]["id"]
    assert callbacks[0].redelivered
    told = [(one.kind, one.detail) for one in callbacks[0].log]
    assert told == [("redelivered", f"application:{application_id}")]
    assert everything.changed_count == sent
    assert [one.kind for one in twice[1].log] == ["delivered", "redelivered"]


async def test_wrong_and_foreign_requests_are_refused(replica: Replica) -> None:
    """A stranger finds no execution and no callback; each wrong request says what is wrong."""
    async with http_endpoint() as endpoint:
        await replica.publish()
        application_id, key = await replica.register("shop", callback_url=endpoint.url)
        _, stranger = await replica.register("rival")
        execution_id = await _canceled_task(replica, key)
        await endpoint.until("execution.canceled")
        await _delivered(replica, key, execution_id)
        await _bury(replica, execution_id)
        redeliver = replica.tasks.RedeliverCallbacks
        asked = pb.RedeliverCallbacksRequest(idempotency_key="r", execution_id=execution_id)
        hidden = await refused(redeliver(asked, metadata=stranger))
        unlisted = await refused(
            replica.tasks.ListCallbacks(
                pb.ListCallbacksRequest(execution_id=execution_id), metadata=stranger
            )
        )
        elsewhere = await redeliver(
            pb.RedeliverCallbacksRequest(
                idempotency_key="f", filter="status != FAILED", application_id=application_id
            ),
            metadata=stranger,
        )
        reader = await replica.key_of(application_id, application_pb.API_KEY_SCOPE_READ)
        denied = await refused(redeliver(asked, metadata=reader))
        await redeliver(asked, metadata=key)
        asked.include_delivered = True
        reused = await refused(redeliver(asked, metadata=key))
        asked.filter = "status = FAILED"
        both = await refused(redeliver(asked, metadata=key))
        neither = await refused(
            redeliver(pb.RedeliverCallbacksRequest(idempotency_key="n"), metadata=key)
        )
        unnamed = await refused(
            replica.tasks.ListCallbacks(pb.ListCallbacksRequest(status=DELIVERED), metadata=key)
        )

    assert hidden[0] is unlisted[0] is grpc.StatusCode.NOT_FOUND
    assert elsewhere.matched_count == 0
    assert denied[:2] == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
    assert reused[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert both[0] is neither[0] is unnamed[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_endpoint_says_when_to_come_again(replica: Replica) -> None:
    """Retry-After of a 429 moves the next try, beyond what the back-off alone would wait."""
    async with http_endpoint() as endpoint:
        endpoint.answers, endpoint.headers = [429], {"retry-after": "3600"}
        await replica.publish()
        _, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)

        async def retrying() -> list[pb.Callback]:
            return await _listed(replica, key, status=pb.CALLBACK_STATUS_RETRYING)

        found = await eventually(retrying)
        now = Timestamp()
        now.GetCurrentTime()

    assert [(one.execution_id, one.sequence) for one in found] == [(execution_id, 1)]
    assert 3_500 < found[0].next_try_time.seconds - now.seconds <= 3_600


async def test_a_rotated_secret_signs_what_is_sent_after(replica: Replica) -> None:
    """A receiver that holds both secrets misses nothing; with the new one alone it goes on."""
    async with http_endpoint() as endpoint:
        endpoint.secrets = [NEW_SECRET, SECRET]
        await replica.publish()
        application_id, key = await replica.register("shop", callback_url=endpoint.url)
        await _canceled_task(replica, key)
        before = len(await endpoint.until("execution.canceled"))
        rotate = application_pb.RotateCallbackSecretRequest(
            idempotency_key="rotate", application_id=application_id, callback_secret=NEW_SECRET
        )
        await replica.applications.RotateCallbackSecret(rotate, metadata=replica.admin)
        again = await replica.applications.RotateCallbackSecret(rotate, metadata=replica.admin)
        await _canceled_task(replica, key, "k2")
        await endpoint.until_count(2 * before)
        endpoint.secrets = [NEW_SECRET]
        await _canceled_task(replica, key, "k3")
        await endpoint.until_count(3 * before)

    assert again.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
