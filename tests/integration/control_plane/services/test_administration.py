"""Applications, workflows, evidence and server info over a whole replica."""

import grpc
import pytest

from foundation.secrets import TokenKind, hash_token, new_token
from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import mutation_pb2
from tdp.control.v1 import system_service_pb2 as system_pb
from tdp.control.v1 import task_service_pb2 as task_pb
from tdp.control.v1 import workflow_service_pb2 as workflow_pb
from tests.integration.control_plane.replica import WORKFLOW, Replica, metadata_of
from tests.integration.control_plane.services.errors import refused, task_request


async def test_an_application_is_registered_once_per_key_and_name(replica: Replica) -> None:
    """A replay answers the same id; another request under the key, or a taken name, is refused."""
    request = application_pb.RegisterApplicationRequest(idempotency_key="k", name="shop")
    first = await replica.applications.RegisterApplication(request, metadata=replica.admin)
    again = await replica.applications.RegisterApplication(request, metadata=replica.admin)
    reused = await refused(
        replica.applications.RegisterApplication(
            application_pb.RegisterApplicationRequest(idempotency_key="k", name="other"),
            metadata=replica.admin,
        )
    )
    taken = await refused(
        replica.applications.RegisterApplication(
            application_pb.RegisterApplicationRequest(idempotency_key="k2", name="shop"),
            metadata=replica.admin,
        )
    )

    assert again.application == first.application
    assert again.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED
    assert reused[:2] == (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")
    assert taken[:2] == (grpc.StatusCode.ALREADY_EXISTS, "APPLICATION_NAME_TAKEN")
    assert taken[2]["existing_id"] == first.application.application_id


async def test_only_operators_administer_and_an_application_sees_itself(replica: Replica) -> None:
    """An application's key may read its own application, and register or list none."""
    mine, key = await replica.register("shop")
    other, _ = await replica.register("rival")
    shown = await replica.applications.GetApplication(
        application_pb.GetApplicationRequest(application_id=mine), metadata=key
    )
    hidden = await refused(
        replica.applications.GetApplication(
            application_pb.GetApplicationRequest(application_id=other), metadata=key
        )
    )
    denied = [
        await refused(call)
        for call in (
            replica.applications.ListApplications(
                application_pb.ListApplicationsRequest(), metadata=key
            ),
            replica.applications.RegisterApplication(
                application_pb.RegisterApplicationRequest(idempotency_key="x", name="x"),
                metadata=key,
            ),
            replica.workflows.PublishWorkflow(
                workflow_pb.PublishWorkflowRequest(definition=WORKFLOW), metadata=key
            ),
        )
    ]

    assert shown.application.name == "shop"
    assert hidden[0] is grpc.StatusCode.NOT_FOUND
    assert {code for code, _, _ in denied} == {grpc.StatusCode.PERMISSION_DENIED}


async def test_a_revoked_key_no_longer_works(replica: Replica) -> None:
    """A key that no replica has seen before is refused as soon as it is revoked."""
    application_id, _ = await replica.register("shop")
    key = new_token(TokenKind.API_KEY)
    made = await replica.applications.CreateApiKey(
        application_pb.CreateApiKeyRequest(
            idempotency_key="c",
            application_id=application_id,
            key_sha256=hash_token(key),
            scopes=[application_pb.API_KEY_SCOPE_READ],
        ),
        metadata=replica.admin,
    )
    await replica.applications.RevokeApiKey(
        application_pb.RevokeApiKeyRequest(idempotency_key="r", api_key_id=made.api_key_id),
        metadata=replica.admin,
    )
    code, reason, _ = await refused(
        replica.tasks.ListTasks(task_pb.ListTasksRequest(), metadata=metadata_of(key))
    )

    assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")


async def test_a_read_key_cannot_submit(replica: Replica) -> None:
    """Creating a task needs the scope submit, and the error names it."""
    await replica.publish()
    application_id, _ = await replica.register("shop")
    key = new_token(TokenKind.API_KEY)
    await replica.applications.CreateApiKey(
        application_pb.CreateApiKeyRequest(
            idempotency_key="c",
            application_id=application_id,
            key_sha256=hash_token(key),
            scopes=[application_pb.API_KEY_SCOPE_READ],
        ),
        metadata=replica.admin,
    )
    code, reason, metadata = await refused(
        replica.tasks.CreateTask(task_request("k"), metadata=metadata_of(key))
    )

    assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
    assert metadata["scope"] == "submit"


async def test_published_versions_are_immutable_and_deprecation_hides_them(
    replica: Replica,
) -> None:
    """The same content again changes nothing, other content is refused, the newest is resolved."""
    await replica.publish()
    again = await replica.workflows.PublishWorkflow(
        workflow_pb.PublishWorkflowRequest(definition=WORKFLOW), metadata=replica.admin
    )
    other = await refused(
        replica.workflows.PublishWorkflow(
            workflow_pb.PublishWorkflowRequest(definition=WORKFLOW.replace("{y:", "{w:")),
            metadata=replica.admin,
        )
    )
    await replica.publish(WORKFLOW.replace('version: "1"', 'version: "2"', 1))
    newest = await replica.workflows.GetWorkflow(
        workflow_pb.GetWorkflowRequest(name="two-steps"), metadata=replica.admin
    )
    await replica.workflows.DeprecateWorkflow(
        workflow_pb.DeprecateWorkflowRequest(name="two-steps", version="2"),
        metadata=replica.admin,
    )
    before = await replica.workflows.GetWorkflow(
        workflow_pb.GetWorkflowRequest(name="two-steps"), metadata=replica.admin
    )
    listed = await replica.workflows.ListWorkflows(
        workflow_pb.ListWorkflowsRequest(), metadata=replica.admin
    )

    assert not again.changed
    assert other[:2] == (grpc.StatusCode.ALREADY_EXISTS, "WORKFLOW_VERSION_TAKEN")
    assert (newest.workflow.version, before.workflow.version) == ("2", "1")
    assert [one.version for one in listed.workflows] == ["1", "2"]


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("steps: [", "YAML"),
        (WORKFLOW.replace("depends_on: [a]", "depends_on: [zz]"), "zz"),
        (WORKFLOW.replace("depends_on: [a]", "depends_on: [b]"), "itself"),
        (WORKFLOW.replace("${input.x}", "${nonsense.x}"), "nonsense"),
    ],
)
async def test_a_wrong_definition_names_its_mistake(
    replica: Replica, definition: str, words: str
) -> None:
    """Publishing says which key is wrong and why, and stores nothing."""
    with pytest.raises(grpc.aio.AioRpcError, match=words) as error:
        await replica.workflows.PublishWorkflow(
            workflow_pb.PublishWorkflowRequest(definition=definition), metadata=replica.admin
        )
    listed = await replica.workflows.ListWorkflows(
        workflow_pb.ListWorkflowsRequest(), metadata=replica.admin
    )

    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not listed.workflows


async def test_evidence_is_found_by_task_execution_and_reference(replica: Replica) -> None:
    """The three ways to name an execution lead to one ladder; a stranger finds nothing."""
    await replica.publish()
    _, key = await replica.register("shop")
    _, stranger = await replica.register("rival")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    requests = (
        system_pb.GetEvidenceRequest(task_id=made.task_id),
        system_pb.GetEvidenceRequest(execution_id=made.execution_id),
        system_pb.GetEvidenceRequest(external_ref="order-k"),
    )
    ladders = [await replica.system.GetEvidence(one, metadata=key) for one in requests]
    hidden = [await refused(replica.system.GetEvidence(one, metadata=stranger)) for one in requests]
    empty = await refused(replica.system.GetEvidence(system_pb.GetEvidenceRequest(), metadata=key))

    assert {one.execution_id for one in ladders} == {made.execution_id}
    assert [rung.hop for rung in ladders[0].rungs] == list(range(2, 10))
    assert ladders[0].rungs[0].state == system_pb.RUNG_STATE_DURABLE
    assert {code for code, _, _ in hidden} == {grpc.StatusCode.NOT_FOUND}
    assert empty[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_server_info_tells_version_and_database_time(replica: Replica) -> None:
    """Any key may ask what the server is."""
    _, key = await replica.register("shop")
    info = await replica.system.GetServerInfo(system_pb.GetServerInfoRequest(), metadata=key)

    assert info.version
    assert info.protocol_version_min == info.protocol_version_max == 1
    assert info.database_time.seconds > 0
