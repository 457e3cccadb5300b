-- name: lock_tasks
-- purpose: locks tasks by ascending id, so that one act at a time decides about their runs
select
    task_id::text, application_id::text, external_ref, callback_url, current_run,
    current_execution_id::text
from tasks
where task_id = any($1::uuid[]) and ($2::uuid is null or application_id = $2)
order by tasks.task_id
for update;

-- name: execution_of_run
-- purpose: names the execution of one run of a task
select execution_id::text from executions where task_id = $1 and run = $2;

-- name: lock_executions
-- purpose: locks executions by ascending id and reads what an act on them decides about
select
    execution_id::text, status, run, version, last_sequence, progress_percent, snapshot_digest,
    deadline_at, created_at
from executions
where execution_id = any($1::uuid[])
order by executions.execution_id
for update;

-- name: start_canceling
-- purpose: makes live executions CANCELING and due for the engine, also those that were set aside
update executions
set
    status = 'CANCELING',
    version = version + 1,
    last_sequence = last_sequence + 1,
    next_due_at = tdp_now(),
    quarantined_at = null,
    advance_failures = 0
where execution_id = any($1::uuid[]);

-- name: insert_rerun
-- purpose: starts the next run of a task over the same snapshot
with execution as (
    insert into executions (
        execution_id, task_id, application_id, run, status, snapshot_digest, deadline_at,
        next_due_at
    )
    select
        $2, task_id, application_id, run + 1, 'CREATED', snapshot_digest,
        tdp_now() + (deadline_at - created_at), tdp_now() + interval '2 seconds'
    from executions
    where execution_id = $1
    returning task_id, execution_id, run
)
update tasks
set current_execution_id = execution.execution_id, current_run = execution.run
from execution
where tasks.task_id = execution.task_id;

-- name: ended_steps
-- purpose: reads how the step instances of an execution ended, without their documents
select step_key, item_index, status
from steps
where execution_id = $1;

-- name: take_over_steps
-- purpose: begins a run with steps of another one ($1): kept as they ended ($5), or to be run again
-- A for_each step that is gathered again keeps its list; nothing else of what runs again is kept.
insert into steps (
    execution_id, step_key, item_index, position, status, progress_percent, capability,
    capability_version, input, output, failure, reused_from_execution_id, completed_at
)
select
    $2, step.step_key, step.item_index, step.position,
    case when given.is_kept then step.status else 'PENDING' end,
    case when given.is_kept then step.progress_percent else 0 end,
    step.capability, step.capability_version,
    case when given.is_kept or step.item_index = -1 then step.input end,
    case when given.is_kept then step.output end,
    case when given.is_kept then step.failure end,
    case when given.is_kept then coalesce(step.reused_from_execution_id, step.execution_id) end,
    case when given.is_kept then tdp_now() end
from unnest($3::text[], $4::integer[], $5::boolean[]) as given (step_key, item_index, is_kept)
inner join steps as step
    on step.execution_id = $1
    and step.step_key = given.step_key
    and step.item_index = given.item_index;

-- name: note_rerun
-- purpose: records on the timeline of a new run who asked for it, why, and what it took over
insert into timeline (execution_id, type, actor, detail)
values (
    $1, 'execution.rerun_requested', $2,
    json_build_object(
        'reason', $3::text, 'mode', $4::text, 'from_step', $5::text,
        'from_execution_id', $6::text, 'kept_steps', $7::integer
    )::text
);

-- name: note_acts
-- purpose: records on the timeline of each execution who did what, and why
insert into timeline (execution_id, type, actor, detail)
select execution_id, $2, $3, json_build_object('reason', $4::text)::text
from unnest($1::uuid[]) as execution_id;
