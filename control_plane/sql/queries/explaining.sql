-- name: read_snapshot_digest
-- purpose: names the frozen workflow of an execution
select snapshot_digest
from executions
where execution_id = $1;

-- name: read_explained_step
-- purpose: reads where a step instance stands; always a row for an execution that is there
select
    execution.status as execution_status, execution.paused,
    step.status as step_status, step.attempt_number,
    coalesce(waiting.sentence, '') as sentence,
    request.requirement, request.capability, request.capability_version,
    request.reasons is not null and request.waits_for is null as is_parked, request.created_at as requested_at,
    coalesce(node.name, attempt.node_id::text, '') as node_name, attempt.dispatched_at
from executions as execution
left join steps as step
    on step.execution_id = execution.execution_id
    and step.step_key = $2
    and step.item_index = $3
left join waiting_steps as waiting
    on waiting.execution_id = step.execution_id
    and waiting.step_key = step.step_key
    and waiting.item_index = step.item_index
left join scheduling_requests as request
    on request.execution_id = step.execution_id
    and request.step_key = step.step_key
    and request.item_index = step.item_index
    and request.attempt_number = step.attempt_number
    and request.status in ('PENDING', 'CLAIMED')
left join attempts as attempt
    on attempt.execution_id = step.execution_id
    and attempt.step_key = step.step_key
    and attempt.item_index = step.item_index
    and attempt.number = step.attempt_number
left join nodes as node on node.node_id = attempt.node_id
where execution.execution_id = $1;

-- name: read_holders
-- purpose: reads how far some steps of an execution are, items aside
select step_key, status
from steps
where execution_id = $1
    and step_key = any($2::text[])
    and item_index = -1;
