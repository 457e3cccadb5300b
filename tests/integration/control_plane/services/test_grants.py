"""Grant calls of a node over a whole replica: whose lease, which resource, what is kept."""

from dataclasses import dataclass

import grpc

from foundation.postgres.pool import Database
from foundation.secrets import TokenKind, hash_token, new_token
from tdp.node.v1 import node_service_pb2 as pb
from tests.integration.control_plane.replica import Metadata, Replica, metadata_of
from tests.integration.control_plane.services.errors import refused, task_request
from tests.integration.control_plane.services.provider import serving_provider

ATTEMPT = "0190bbbb-0000-7000-8000-000000000001"
BOOT = "0190bbbb-0000-7000-8000-0000000000b1"


@dataclass(frozen=True, slots=True)
class _World:
    """A node with a live attempt of a step whose input names an asset and a collection."""

    replica: Replica
    key: Metadata
    database: Database

    async def lose_lease(self) -> None:
        await self.database.fetch(
            "update attempts set lease_expires_at = tdp_now() - interval '1 second'"
        )


async def _world(replica: Replica, provider_url: str) -> _World:
    database = replica.plane.database
    await replica.publish()
    application_id, application = await replica.register("shop", provider_url=provider_url)
    made = await replica.tasks.CreateTask(task_request("k"), metadata=application)
    credential = new_token(TokenKind.NODE)
    node_id = replica.plane.ids.new_id()
    await database.fetch(
        "insert into nodes (node_id, name, credential_sha256) values ($1, 'n', $2)",
        node_id,
        hash_token(credential),
    )
    await database.fetch(
        """
        insert into steps (execution_id, step_key, position, status, attempt_number, input)
        values ($1, 'x', 99, 'RUNNING', 1, '{"archive":"asset:1","into":["collection:1"]}')
        """,
        made.execution_id,
    )
    await database.fetch(
        """
        insert into attempts (attempt_id, execution_id, step_key, item_index, number, task_id,
            application_id, node_id, lease_version, lease_expires_at, status)
        values ($1, $2, 'x', -1, 1, $3, $4, $5, 1, tdp_now() + interval '1 hour', 'RUNNING')
        """,
        ATTEMPT,
        made.execution_id,
        made.task_id,
        application_id,
        node_id,
    )
    return _World(replica, metadata_of(credential), database)


def _authorize(key: str, **changes: object) -> pb.AuthorizeResourceRequest:
    fields: dict[str, object] = {
        "idempotency_key": key,
        "attempt_id": ATTEMPT,
        "lease_version": 1,
        "resource_ref": "asset:1",
        "method": pb.GRANT_METHOD_GET,
    }
    return pb.AuthorizeResourceRequest(**(fields | changes))  # type: ignore[arg-type]


def _allocate(key: str, *paths: str) -> pb.AllocateArtifactsRequest:
    return pb.AllocateArtifactsRequest(
        idempotency_key=key,
        attempt_id=ATTEMPT,
        lease_version=1,
        boot_id=BOOT,
        collection_ref="collection:1",
        artifacts=[pb.ArtifactRequest(relative_path=path, size_bytes_max=9) for path in paths],
    )


async def test_a_grant_is_given_once_per_key_and_renewed(replica: Replica) -> None:
    """The same key gets the same grant; a renewal asks the provider anew."""
    async with serving_provider() as provider:
        world = await _world(replica, provider.url)
        nodes = replica.nodes
        first = await nodes.AuthorizeResource(_authorize("a"), metadata=world.key)
        again = await nodes.AuthorizeResource(_authorize("a"), metadata=world.key)
        renewed = await nodes.RenewGrant(
            pb.RenewGrantRequest(
                idempotency_key="r",
                attempt_id=ATTEMPT,
                lease_version=1,
                grant_id=first.grant.grant_id,
            ),
            metadata=world.key,
        )
        stored = await world.database.fetch("select secret from grants")

    assert first == again
    assert renewed.grant.grant_id != first.grant.grant_id
    assert len(provider.issued) == 2
    assert provider.issued[0].work.external_ref == "order-k"
    assert all(b"127.0.0.1" not in row["secret"] for row in stored), "URLs are sealed at rest"


async def test_what_the_work_does_not_name_is_refused(replica: Replica) -> None:
    """A resource outside the input, and a place that was not allocated, are refused."""
    async with serving_provider() as provider:
        world = await _world(replica, provider.url)
        for request in (
            _authorize("a", resource_ref="asset:2"),
            _authorize("b", method=pb.GRANT_METHOD_PUT),
        ):
            code, reason, _ = await refused(
                replica.nodes.AuthorizeResource(request, metadata=world.key)
            )
            assert (code, reason) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "RESOURCE_NOT_REFERENCED",
            )
    assert not provider.issued


async def test_only_the_live_lease_on_its_own_node_gets_access(replica: Replica) -> None:
    """Another lease version, a stranger's credential and an expired lease are refused."""
    async with serving_provider() as provider:
        world = await _world(replica, provider.url)
        stranger = new_token(TokenKind.NODE)
        await world.database.fetch(
            "insert into nodes (node_id, name, credential_sha256) values ($1, 's', $2)",
            replica.plane.ids.new_id(),
            hash_token(stranger),
        )
        newer = await refused(
            replica.nodes.AuthorizeResource(_authorize("a", lease_version=2), metadata=world.key)
        )
        missing = await refused(
            replica.nodes.AuthorizeResource(_authorize("b", lease_version=0), metadata=world.key)
        )
        other = await refused(
            replica.nodes.AuthorizeResource(_authorize("c"), metadata=metadata_of(stranger))
        )
        await world.lose_lease()
        late = await refused(replica.nodes.AuthorizeResource(_authorize("d"), metadata=world.key))

    assert missing[0] is grpc.StatusCode.INVALID_ARGUMENT
    for code, reason, _ in (newer, other, late):
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST")


async def test_places_are_allocated_once_and_may_then_be_written(replica: Replica) -> None:
    """The same path keeps its reference, and only then may it be granted for writing."""
    async with serving_provider() as provider:
        world = await _world(replica, provider.url)
        first = await replica.nodes.AllocateArtifacts(
            _allocate("a", "图/1.png", "2.png"), metadata=world.key
        )
        again = await replica.nodes.AllocateArtifacts(_allocate("b", "2.png"), metadata=world.key)
        put = await replica.nodes.AuthorizeResource(
            _authorize(
                "p", resource_ref=first.artifacts[1].resource_ref, method=pb.GRANT_METHOD_PUT
            ),
            metadata=world.key,
        )
        rows = await world.database.fetch("select relative_path from artifacts order by 1")

    assert [one.relative_path for one in first.artifacts] == ["图/1.png", "2.png"]
    assert again.artifacts[0].resource_ref == first.artifacts[1].resource_ref
    assert put.grant.method == pb.GRANT_METHOD_PUT
    assert [row["relative_path"] for row in rows] == ["2.png", "图/1.png"]


async def test_a_provider_that_refuses_or_is_away_is_told_apart(replica: Replica) -> None:
    """A refusal fails the attempt's call for good; an absent provider is UNAVAILABLE."""
    async with serving_provider() as provider:
        world = await _world(replica, provider.url)
        provider.refusal = grpc.StatusCode.NOT_FOUND
        gone = await refused(replica.nodes.AuthorizeResource(_authorize("a"), metadata=world.key))
        provider.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
        busy = await refused(replica.nodes.AuthorizeResource(_authorize("b"), metadata=world.key))

    assert gone[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "RESOURCE_PROVIDER_REFUSED")
    assert busy[0] is grpc.StatusCode.UNAVAILABLE
