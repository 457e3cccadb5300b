-- Acts on live executions: the statements of operation_store.py. Each transaction locks the
-- execution first; its steps change only under that lock.

-- name: lock_execution
-- purpose: locks an execution and reads what acts on it decide about
select
    execution_id::text, status, paused, paused_at, quarantined_at is not null as is_set_aside,
    snapshot_digest
from executions
where execution_id = $1 and ($2::uuid is null or application_id = $2)
for update;

-- name: step_instances
-- purpose: reads the instances of one step, and the time
-- A step that the engine has not made yet answers one row whose status is null.
select step.item_index, step.status, moment.now
from (select tdp_now() as now) as moment
left join steps as step on step.execution_id = $1 and step.step_key = $2;

-- name: end_steps
-- purpose: ends instances of a step by an act: their request is voided, the engine is to look
-- A request that is being dispatched just now is locked and is not voided here: its dispatch waits
-- for the execution, sees the step and voids it itself. $3: items; $4–$6: how they end; $7–$9: the
-- timeline's type, actor and detail; $10 the item that was named.
with ended as (
    update steps
    set
        status = $4,
        output = $5,
        failure = $6,
        progress_percent = case when $4 = 'SUCCEEDED' then 100 else progress_percent end,
        deadline_at = null,
        not_before = null,
        completed_at = tdp_now()
    where execution_id = $1 and step_key = $2 and item_index = any($3::integer[])
),
unwanted as materialized (
    select item_index, attempt_number
    from scheduling_requests
    where execution_id = $1
        and step_key = $2
        and item_index = any($3::integer[])
        and status in ('PENDING', 'CLAIMED')
    for update skip locked
),
voided as (
    update scheduling_requests
    set status = 'VOIDED', claim_id = null
    from unwanted
    where scheduling_requests.execution_id = $1
        and scheduling_requests.step_key = $2
        and scheduling_requests.item_index = unwanted.item_index
        and scheduling_requests.attempt_number = unwanted.attempt_number
),
due as (
    update executions set next_due_at = tdp_now() where execution_id = $1
)
insert into timeline (execution_id, step_key, item_index, type, actor, detail)
values ($1, $2, $10, $7, $8, $9);

-- name: make_skipped
-- purpose: makes the instance of a step that is skipped before the engine has made it
insert into steps (
    execution_id, step_key, item_index, position, status, capability, capability_version,
    completed_at
)
values ($1, $2, -1, $3, 'SKIPPED', $4, $5, tdp_now());

-- name: pause
-- purpose: stops the dispatching of an execution, and says who and why
with paused as (
    update executions
    set paused = true, paused_at = tdp_now(), next_due_at = tdp_now()
    where execution_id = $1
)
insert into timeline (execution_id, type, actor, detail)
values ($1, 'execution.paused', $2, json_build_object('reason', $3::text)::text);

-- name: queued_steps
-- purpose: reads the steps whose queue time a pause has stopped, and the time
select step_key, item_index, ready_at, not_before, deadline_at, tdp_now() as now
from steps
where execution_id = $1 and status = 'READY' and deadline_at is not null;

-- name: resume
-- purpose: lets an execution go on, with the queue times that were left ($4–$6)
with queued as (
    update steps
    set deadline_at = given.deadline_at
    from unnest($4::text[], $5::integer[], $6::timestamptz[])
        as given (step_key, item_index, deadline_at)
    where steps.execution_id = $1
        and steps.step_key = given.step_key
        and steps.item_index = given.item_index
),
resumed as (
    update executions
    set
        paused = false,
        paused_at = null,
        next_due_at = tdp_now(),
        quarantined_at = null,
        advance_failures = 0,
        advance_error = null
    where execution_id = $1
)
insert into timeline (execution_id, type, actor, detail)
values ($1, 'execution.resumed', $2, json_build_object('reason', $3::text)::text);

-- name: execution_of_attempt
-- purpose: names the execution of an attempt, if it is the owner's
select execution_id::text
from attempts
where attempt_id = $1 and ($2::uuid is null or application_id = $2);

-- name: lock_attempt
-- purpose: locks an attempt and reads what decides whether its time-out may be moved
select
    status, coalesce(stop_reason, '') as stop_reason, pending_result is not null as is_pending,
    run_deadline_at, node_id::text, tdp_now() as now
from attempts
where attempt_id = $1
for update;

-- name: extend_attempt
-- purpose: moves the run time-out of an attempt ($2: by how much) and orders its node to do so too
-- $3: the command's id, $4: who, $5: why.
with attempt as (
    update attempts
    set run_deadline_at = run_deadline_at + $2::interval
    where attempt_id = $1
    returning
        attempt_id, execution_id, step_key, item_index, node_id, lease_version, run_deadline_at
),
told as (
    insert into timeline (execution_id, step_key, item_index, attempt_id, type, actor, detail)
    select
        execution_id, step_key, item_index, attempt_id, 'attempt.extended', $4,
        json_build_object(
            'reason', $5::text,
            'extension_s', extract(epoch from $2::interval)::float8,
            'run_deadline_at', run_deadline_at
        )::text
    from attempt
),
node as (
    update nodes
    set last_command_sequence = last_command_sequence + 1
    where node_id = (select node_id from attempt)
    returning node_id, last_command_sequence
),
ordered as (
    insert into node_commands (node_id, sequence, command_id, kind, attempt_id, payload)
    select
        node.node_id, node.last_command_sequence, $3, 'EXTEND', attempt.attempt_id,
        json_build_object(
            'attempt_id', attempt.attempt_id,
            'lease_version', attempt.lease_version,
            'extension_s', extract(epoch from $2::interval)::float8
        )::text
    from attempt
    inner join node on node.node_id = attempt.node_id
)
select run_deadline_at from attempt;
