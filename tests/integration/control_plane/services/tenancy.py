"""What each RPC answers to a tenant who names another's things: one line an RPC.

A request is written as JSON in which `$task` and the like stand for the other tenant's ids.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

HIDDEN: Final = "NOT_FOUND"
DENIED: Final = "PERMISSION_DENIED"
UNKNOWN: Final = "UNAUTHENTICATED"
# Answered, with nothing of the other tenant in it.
OWN: Final = "OK"


@dataclass(frozen=True, slots=True)
class Case:
    """A request that names the other tenant's things, and the status that it must get."""

    request: Json
    status: str


def _key(**fields: object) -> Json:
    return {"idempotency_key": "intruder", **fields}


_FILTER: Final = 'status != "SUCCEEDED"'
_EXECUTION: Final = {"execution_id": "$execution"}
_STEP: Final = {"execution_id": "$execution", "step_key": "a", "item_index": -1}
_SPEC: Final = {
    "cron": "0 0 * * *",
    "overlap_policy": "OVERLAP_POLICY_SKIP",
    "task": {"name": "n", "workflow_name": "two-steps", "input_json": '{"x":1}'},
}
_TASK: Final = {
    "name": "n",
    "workflow_name": "two-steps",
    "input_json": '{"x":1}',
    "application_id": "$application",
}
_ATTEMPT: Final = {"attempt_id": "$attempt", "lease_version": 1}

TASK_CASES: Final = {
    "CreateTask": Case(_key(**_TASK), HIDDEN),
    "GetTask": Case({"task_id": "$task"}, HIDDEN),
    "ListTasks": Case({"application_id": "$application", "filter": _FILTER}, OWN),
    "CancelTask": Case(_key(task_id="$task"), HIDDEN),
    "RerunTask": Case(_key(task_id="$task", mode="RERUN_MODE_FROM_SCRATCH"), HIDDEN),
    "BulkCancelTasks": Case(_key(filter=_FILTER, application_id="$application"), OWN),
    "BulkRerunTasks": Case(
        _key(filter=_FILTER, mode="RERUN_MODE_FROM_SCRATCH", application_id="$application"), OWN
    ),
    "GetExecution": Case(_EXECUTION, HIDDEN),
    "ListExecutions": Case({"task_id": "$task"}, HIDDEN),
    "WatchExecution": Case(_EXECUTION, HIDDEN),
    "ListExecutionEvents": Case(_EXECUTION, HIDDEN),
    "ListSteps": Case(_EXECUTION, HIDDEN),
    "ListAttempts": Case(_EXECUTION, HIDDEN),
    "ListTimeline": Case(_EXECUTION, HIDDEN),
    "ExplainScheduling": Case(_STEP, HIDDEN),
    "SignalStep": Case(_key(**_STEP, approved=True), HIDDEN),
    "SkipStep": Case(_key(**_STEP), HIDDEN),
    "PauseExecution": Case(_key(**_EXECUTION), HIDDEN),
    "ResumeExecution": Case(_key(**_EXECUTION), HIDDEN),
    "ExtendAttempt": Case(_key(attempt_id="$attempt", extension="60s"), HIDDEN),
    "ListCallbacks": Case(_EXECUTION, HIDDEN),
    "RedeliverCallbacks": Case(_key(**_EXECUTION, include_delivered=True), HIDDEN),
}
SCHEDULE_CASES: Final = {
    "CreateSchedule": Case(_key(application_id="$application", name="s", spec=_SPEC), HIDDEN),
    "GetSchedule": Case({"schedule_id": "$schedule"}, HIDDEN),
    "ListSchedules": Case({"application_id": "$application"}, OWN),
    "UpdateSchedule": Case(_key(schedule_id="$schedule", spec=_SPEC), HIDDEN),
    "PauseSchedule": Case(_key(schedule_id="$schedule"), HIDDEN),
    "ResumeSchedule": Case(_key(schedule_id="$schedule"), HIDDEN),
    "DeleteSchedule": Case(_key(schedule_id="$schedule"), HIDDEN),
    "TriggerSchedule": Case(_key(schedule_id="$schedule"), HIDDEN),
    "ListScheduleRuns": Case({"schedule_id": "$schedule"}, HIDDEN),
    "ListUpcomingTimes": Case({"schedule_id": "$schedule"}, HIDDEN),
}
# Definitions are shared by all applications, and changed by operators only.
WORKFLOW_CASES: Final = {
    "PublishWorkflow": Case({"definition": "name: mine"}, DENIED),
    "GetWorkflow": Case({"name": "two-steps"}, OWN),
    "ListWorkflows": Case({}, OWN),
    "DeprecateWorkflow": Case({"name": "two-steps", "version": "1"}, DENIED),
}
APPLICATION_CASES: Final = {
    "GetApplication": Case({"application_id": "$application"}, HIDDEN),
    "RegisterApplication": Case(_key(name="mine"), DENIED),
    "ListApplications": Case({}, DENIED),
    "CreateApiKey": Case(
        _key(application_id="$application", scopes=["API_KEY_SCOPE_ADMIN"]), DENIED
    ),
    "RevokeApiKey": Case(_key(api_key_id="$application"), DENIED),
    "SetCallbackEndpoint": Case(_key(application_id="$application"), DENIED),
    "RotateCallbackSecret": Case(_key(application_id="$application"), DENIED),
    "SetResourceProvider": Case(_key(application_id="$application"), DENIED),
    "RotateResourceProviderSecret": Case(_key(application_id="$application"), DENIED),
    "DisableApplication": Case(_key(application_id="$application"), DENIED),
}
NODE_ADMIN_CASES: Final = {
    "ListNodes": Case({}, DENIED),
    "GetNode": Case({"node_id": "$node"}, DENIED),
    "CordonNode": Case(_key(node_id="$node"), DENIED),
    "UncordonNode": Case(_key(node_id="$node"), DENIED),
    "DrainNode": Case(_key(node_id="$node"), DENIED),
    "SetNodePlacement": Case(_key(node_id="$node"), DENIED),
    "RemoveNode": Case(_key(node_id="$node"), DENIED),
    "CreateJoinToken": Case(_key(), DENIED),
    "RevokeJoinToken": Case(_key(join_token_id="$node"), DENIED),
}
SYSTEM_CASES: Final = {
    "GetServerInfo": Case({}, OWN),
    "GetEvidence": Case(_EXECUTION, HIDDEN),
    "GetConservation": Case({}, DENIED),
}
# An application is no node; a join token, which Enroll takes instead of a key, it does not have.
NODE_CASES: Final = {
    "Enroll": Case(_key(node_name="mine"), UNKNOWN),
    "Session": Case({}, DENIED),
    "AuthorizeResource": Case(
        _key(**_ATTEMPT, resource_ref="asset:1", method="GRANT_METHOD_GET"), DENIED
    ),
    "RenewGrant": Case(_key(**_ATTEMPT, grant_id="$node"), DENIED),
    "AllocateArtifacts": Case(
        _key(
            **_ATTEMPT,
            boot_id="$node",
            collection_ref="collection:1",
            artifacts=[{"relative_path": "a", "size_bytes_max": 1}],
        ),
        DENIED,
    ),
}
CASES: Final = {
    f"{service}/{name}": case
    for service, cases in {
        "tdp.control.v1.TaskService": TASK_CASES,
        "tdp.control.v1.ScheduleService": SCHEDULE_CASES,
        "tdp.control.v1.WorkflowService": WORKFLOW_CASES,
        "tdp.control.v1.ApplicationService": APPLICATION_CASES,
        "tdp.control.v1.NodeAdminService": NODE_ADMIN_CASES,
        "tdp.control.v1.SystemService": SYSTEM_CASES,
        "tdp.node.v1.NodeService": NODE_CASES,
    }.items()
    for name, case in cases.items()
}
