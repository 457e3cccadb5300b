-- name: read_task
-- purpose: reads one task with its current execution
select
    task.name, task.external_ref, task.workflow_name, task.workflow_version, task.priority,
    task.input, task.callback_url, task.labels::text as labels,
    task.created_at as task_created_at, execution.*
from tasks as task
inner join shown_executions as execution on execution.execution_id = task.current_execution_id
where task.task_id = $1 and ($2::uuid is null or task.application_id = $2);

-- name: plan_for_these_values
-- purpose: has the statements of this transaction planned for their values
-- A condition that is not asked for then vanishes, and a selective one chooses the index.
select set_config('plan_cache_mode', 'force_custom_plan', true);

-- name: list_tasks
-- purpose: reads a page of an application's tasks, or of all, that fit a filter, newest first
-- The page ends with the row that takes it past its bytes.
with page as (
    select task_id, execution_id
    from fitting_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    order by task_id desc
    limit $13
),

shown as (
    select
        task.name, task.external_ref, task.workflow_name, task.workflow_version, task.priority,
        task.input, task.callback_url, task.labels::text as labels,
        task.created_at as task_created_at, execution.*,
        octet_length(task.input) + octet_length(execution.output) as row_bytes
    from page
    inner join tasks as task on task.task_id = page.task_id
    inner join shown_executions as execution on execution.execution_id = page.execution_id
)

select *
from (
    select
        shown.*,
        sum(row_bytes) over (order by task_id desc rows unbounded preceding) - row_bytes
            as bytes_before
    from shown
) as sized
where bytes_before <= $14
order by task_id desc;

-- name: read_execution
-- purpose: reads one execution
select *
from shown_executions
where execution_id = $1 and ($2::uuid is null or application_id = $2);

-- name: list_executions
-- purpose: reads a page of a task's executions, newest run first
select *
from shown_executions
where task_id = $1 and ($2::bigint is null or run < $2)
order by run desc
limit $3;

-- name: list_events
-- purpose: reads the events of an execution after a sequence
select
    event_id, execution_id, sequence, type, status, progress_percent, envelope, occurred_at
from execution_events
where execution_id = $1 and sequence > $2
order by sequence
limit $3;

-- name: list_steps
-- purpose: reads a page of an execution's steps in definition order
select
    step.execution_id, step.step_key, step.item_index, step.position, step.status,
    step.attempt_number, step.progress_percent, step.capability, step.capability_version,
    coalesce(step.input, '') as input, coalesce(step.output, '') as output,
    coalesce(step.failure, '') as failure, step.ready_at, step.started_at, step.completed_at,
    coalesce(step.reused_from_execution_id::text, '') as reused_from_execution_id,
    coalesce(upper(left(waiting.sentence, 1)) || substr(waiting.sentence, 2), '') as waiting_for
from steps as step
left join waiting_steps as waiting
    on
        waiting.execution_id = step.execution_id
        and waiting.step_key = step.step_key
        and waiting.item_index = step.item_index
where
    step.execution_id = $1
    and ($2::bigint is null or (step.position, step.item_index) > ($2, $3::bigint))
order by step.position, step.item_index
limit $4;

-- name: list_attempts
-- purpose: reads a page of an execution's attempts, oldest first
select
    attempt_id, execution_id, step_key, item_index, number, node_id, lease_version, status,
    progress_percent, coalesce(stop_reason, '') as stop_reason, coalesce(failure, '') as failure,
    coalesce(usage, '') as usage, coalesce(log_tail, '') as log_tail, lease_expires_at, dispatched_at, accepted_at, completed_at
from attempts
where
    execution_id = $1
    and ($2 = '' or step_key = $2)
    and ($3::uuid is null or attempt_id > $3)
    and ($5::uuid is null or attempt_id = $5)
order by attempt_id
limit $4;

-- name: list_timeline
-- purpose: reads a page of an execution's timeline, oldest first
select
    entry_id, execution_id, step_key, item_index, coalesce(attempt_id::text, '') as attempt_id,
    type, actor, detail, occurred_at
from timeline
where execution_id = $1 and entry_id > $2
order by entry_id
limit $3;
