-- name: lock_task
-- purpose: locks a task, so that one act at a time decides about its runs
select
    task_id::text, application_id::text, external_ref, callback_url, current_run,
    current_execution_id::text
from tasks
where task_id = $1 and ($2::uuid is null or application_id = $2)
for update;

-- name: execution_of_run
-- purpose: names the execution of one run of a task
select execution_id::text from executions where task_id = $1 and run = $2;

-- name: lock_current_execution
-- purpose: locks an execution and reads what an act on it decides about
select status, run, version, last_sequence, progress_percent, snapshot_digest, deadline_at, created_at
from executions
where execution_id = $1
for update;

-- name: start_canceling
-- purpose: makes a live execution CANCELING and due for the engine
update executions
set
    status = 'CANCELING',
    version = version + 1,
    last_sequence = last_sequence + 1,
    next_due_at = tdp_now()
where execution_id = $1;

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

-- name: note_act
-- purpose: records on the timeline who did what, and why
insert into timeline (execution_id, type, actor, detail)
values ($1, $2, $3, json_build_object('reason', $4::text)::text);
