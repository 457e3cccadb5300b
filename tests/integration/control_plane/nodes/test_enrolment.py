"""Enrolment and node administration, over real gRPC."""

import hashlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from control_plane.adapters.outbound.postgres.node_directory import PostgresNodeDirectory
from foundation.errors import ErrorCode, TdpError
from foundation.grpc.status import from_rpc_error
from foundation.secrets import TokenKind, hash_token, new_token
from tdp.control.v1 import mutation_pb2
from tdp.control.v1 import node_admin_service_pb2 as admin_pb
from tdp.control.v1 import node_admin_service_pb2_grpc as admin_grpc
from tdp.node.v1 import node_service_pb2 as pb
from tdp.node.v1 import node_service_pb2_grpc as pb_grpc
from tests.integration.control_plane.nodes.replica import Replica, running
from tests.integration.control_plane.nodes.world import IDS, World

Stubs = tuple[pb_grpc.NodeServiceStub, admin_grpc.NodeAdminServiceStub]

AnswerT = TypeVar("AnswerT")
OPERATOR = (("authorization", "Bearer operator"),)
CREDENTIAL = hashlib.sha256(b"credential").digest()


@asynccontextmanager
async def _stubs(replica: Replica) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(replica.address) as channel:
        yield pb_grpc.NodeServiceStub(channel), admin_grpc.NodeAdminServiceStub(channel)


async def _answer(call: Awaitable[AnswerT]) -> AnswerT:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def _enroll(stub: pb_grpc.NodeServiceStub, token: str, **changes: Any) -> pb.EnrollResponse:
    fields: dict[str, Any] = {
        "idempotency_key": "k",
        "node_name": "n1",
        "credential_sha256": CREDENTIAL,
    }
    return await _answer(
        stub.Enroll(
            pb.EnrollRequest(**(fields | changes)),
            metadata=(("authorization", f"Bearer {token}"),),
        )
    )


async def _token(
    admin: admin_grpc.NodeAdminServiceStub, key: str = "t", **changes: Any
) -> tuple[str, admin_pb.CreateJoinTokenResponse]:
    token = new_token(TokenKind.JOIN)
    request = admin_pb.CreateJoinTokenRequest(
        idempotency_key=key, token_sha256=hash_token(token), group="gpu", **changes
    )
    return token, await _answer(admin.CreateJoinToken(request, metadata=OPERATOR))


async def test_a_token_enrols_a_node_once_per_key(world: World) -> None:
    """The same call answers the same node, another body under its key is refused."""
    async with running(world) as replica, _stubs(replica) as (node, admin):
        token, created = await _token(admin, use_count_max=1)
        assert created.outcome == mutation_pb2.MUTATION_OUTCOME_CREATED
        first = await _enroll(node, token)
        assert (await _enroll(node, token)).node_id == first.node_id
        with pytest.raises(TdpError) as caught:
            await _enroll(node, token, node_name="other")
        assert (caught.value.code, caught.value.reason) == (
            ErrorCode.ALREADY_EXISTS,
            "IDEMPOTENCY_KEY_REUSED",
        )
        # Spent now; a replay is still answered, also after the token is revoked.
        with pytest.raises(TdpError) as caught:
            await _enroll(node, token, idempotency_key="k2", node_name="n2")
        assert caught.value.reason == "JOIN_TOKEN_SPENT"
        revoke = admin_pb.RevokeJoinTokenRequest(
            idempotency_key="r", join_token_id=created.join_token_id
        )
        await _answer(admin.RevokeJoinToken(revoke, metadata=OPERATOR))
        assert (await _enroll(node, token)).node_id == first.node_id
    row = await world.fetch_node(first.node_id)
    assert (row["node_group"], row["generation"], row["runtime"]) == ("gpu", 0, "SILENT")
    assert await world.value("select use_count from join_tokens") == 1


@pytest.mark.parametrize(
    "token",
    ["tdp_join_nonsense", new_token(TokenKind.JOIN), "operator"],
    ids=["malformed", "unknown", "other kind"],
)
async def test_other_tokens_enrol_nothing(world: World, token: str) -> None:
    """What is no registered join token is UNAUTHENTICATED."""
    async with running(world) as replica, _stubs(replica) as (node, _):
        with pytest.raises(TdpError) as caught:
            await _enroll(node, token)
        assert caught.value.code is ErrorCode.UNAUTHENTICATED


async def test_names_and_credentials_are_unique(world: World) -> None:
    """A taken name is refused with the existing id, and uses up nothing."""
    async with running(world) as replica, _stubs(replica) as (node, admin):
        token, _ = await _token(admin)
        first = await _enroll(node, token)
        with pytest.raises(TdpError) as caught:
            await _enroll(node, token, idempotency_key="k2", credential_sha256=b"x" * 32)
        assert (caught.value.reason, caught.value.metadata["existing_id"]) == (
            "NODE_EXISTS",
            first.node_id,
        )
        with pytest.raises(TdpError) as caught:
            await _enroll(node, token, idempotency_key="k3", node_name="n3")
        assert caught.value.reason == "NODE_EXISTS"
    assert await world.value("select use_count from join_tokens") == 1


async def test_operators_cordon_list_and_page(world: World) -> None:
    """Nodes come by name in pages; cordon and uncordon are idempotent by key."""
    names = ["a", "b", "c"]
    ids = {name: await world.add_node(name) for name in names}
    await world.open(ids["b"])
    async with running(world) as replica, _stubs(replica) as (_, admin):
        page = await _answer(
            admin.ListNodes(admin_pb.ListNodesRequest(page_size=2), metadata=OPERATOR)
        )
        assert [one.name for one in page.nodes] == ["a", "b"]
        assert page.nodes[1].runtime == admin_pb.NODE_RUNTIME_READY
        assert [one.name for one in page.nodes[1].capabilities] == ["demo.work"]
        rest = await _answer(
            admin.ListNodes(
                admin_pb.ListNodesRequest(page_size=2, page_token=page.next_page_token),
                metadata=OPERATOR,
            )
        )
        assert [one.name for one in rest.nodes] == ["c"]
        assert not rest.next_page_token
        request = admin_pb.CordonNodeRequest(
            idempotency_key="c", node_id=ids["a"], reason="maintenance"
        )
        done = await _answer(admin.CordonNode(request, metadata=OPERATOR))
        again = await _answer(admin.CordonNode(request, metadata=OPERATOR))
        assert done.node.management == admin_pb.NODE_MANAGEMENT_CORDONED
        assert (done.outcome, again.outcome) == (
            mutation_pb2.MUTATION_OUTCOME_CREATED,
            mutation_pb2.MUTATION_OUTCOME_REPLAYED,
        )
        back = admin_pb.UncordonNodeRequest(idempotency_key="u", node_id=ids["a"])
        node = (await _answer(admin.UncordonNode(back, metadata=OPERATOR))).node
        assert node.management == admin_pb.NODE_MANAGEMENT_ACTIVE
        unknown = admin_pb.GetNodeRequest(node_id=IDS.new_id())
        with pytest.raises(TdpError) as caught:
            await _answer(admin.GetNode(unknown, metadata=OPERATOR))
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_nodes_are_not_operators(world: World) -> None:
    """A node's credential administers nothing."""
    node_id = await world.add_node()
    async with running(world) as replica, _stubs(replica) as (_, admin):
        with pytest.raises(TdpError) as caught:
            await _answer(
                admin.ListNodes(
                    admin_pb.ListNodesRequest(),
                    metadata=(("authorization", f"Bearer node:{node_id}"),),
                )
            )
        assert caught.value.code is ErrorCode.PERMISSION_DENIED


async def test_a_join_token_ends_when_it_was_said_to(world: World) -> None:
    """Its time is bounded, and 0 means a day; the same token is not registered twice."""
    async with running(world) as replica, _stubs(replica) as (_, admin):
        _, day = await _token(admin)
        _, hour = await _token(admin, "h", ttl=Duration(seconds=3600))
        left = day.expire_time.ToDatetime() - hour.expire_time.ToDatetime()
        assert timedelta(hours=22) < left < timedelta(hours=24)
        with pytest.raises(TdpError) as caught:
            await _token(admin, "y", ttl=Duration(seconds=366 * 86400))
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        request = admin_pb.CreateJoinTokenRequest(idempotency_key="x1", token_sha256=b"z" * 32)
        await _answer(admin.CreateJoinToken(request, metadata=OPERATOR))
        request.idempotency_key = "x2"
        with pytest.raises(TdpError) as caught:
            await _answer(admin.CreateJoinToken(request, metadata=OPERATOR))
        assert caught.value.reason == "JOIN_TOKEN_EXISTS"
    assert await PostgresNodeDirectory(world.database, IDS).list_nodes("", 10) == []
