-- name: execution_of_task
-- purpose: names the current execution of a task
select current_execution_id::text
from tasks
where task_id = $1 and ($2::uuid is null or application_id = $2);

-- name: execution_of_id
-- purpose: checks that an execution exists and whose it is
select execution_id::text
from executions
where execution_id = $1 and ($2::uuid is null or application_id = $2);

-- name: execution_of_reference
-- purpose: names the current execution of the newest task that carries a reference
select current_execution_id::text
from tasks
where
    -- Said again, or the index of those that have one could not be used.
    external_ref = $1 and external_ref <> '' and ($2::uuid is null or application_id = $2)
order by task_id desc
limit 1;

-- name: evidence_of_task
-- purpose: hop 2, the task and its execution
select
    task.task_id::text, task.external_ref, task.callback_url <> '' as with_callback,
    task.application_id::text, execution.status, execution.run,
    coalesce(execution.failure, '') as failure, execution.waiting_for, execution.created_at,
    (
        select count(*) from executions as older
        where older.task_id = task.task_id and older.run < execution.run
    ) as earlier_runs
from shown_executions as execution
inner join tasks as task using (task_id)
where execution.execution_id = $1;

-- name: evidence_of_outbox
-- purpose: hop 3, the wake-ups of an execution
select
    count(*) as total,
    count(*) filter (where status = 'PUBLISHED') as done,
    max(published_at) as durable_at,
    (array_agg(outbox_id::text order by position))[1] as first_id,
    coalesce(sum(attempts), 0)::integer as failures,
    coalesce(sum(greatest(claims - 1, 0)), 0)::integer as takeovers,
    max(last_error) filter (where status <> 'PUBLISHED') as open_error
from outbox_events
where execution_id = $1;

-- name: evidence_of_steps
-- purpose: hop 4, the steps of an execution and what waits to be scheduled
select
    count(*) as total,
    min(coalesce(ready_at, completed_at)) as durable_at,
    string_agg(
        step_key || case when item_index >= 0 then '[' || item_index || ']' else '' end
        || ' ' || status, ', ' order by position, item_index
    ) filter (where position < 20 and item_index < 5) as shown,
    (
        select count(*) from scheduling_requests as request
        where request.execution_id = $1 and request.status <> 'VOIDED'
    ) as requested
from steps
where execution_id = $1;

-- name: evidence_of_attempts
-- purpose: hops 5 to 7, every attempt with its command
select
    attempt.attempt_id::text, attempt.step_key, attempt.item_index, attempt.number,
    attempt.node_id::text, coalesce(node.name, '') as node_name, attempt.lease_version,
    attempt.status, attempt.dispatched_at, attempt.accepted_at, attempt.completed_at,
    attempt.pending_result is not null as pending, coalesce(attempt.failure, '') as failure,
    command.command_id::text, command.sequence, command.status as command_status,
    command.send_count, command.acked_at
from attempts as attempt
left join nodes as node using (node_id)
left join node_commands as command
    on command.attempt_id = attempt.attempt_id and command.kind = 'RUN'
where attempt.execution_id = $1
order by attempt.attempt_id
limit 500;

-- name: evidence_of_resumes
-- purpose: hop 7, attempts that a restarted agent went on with
select step_key, detail::json ->> 'attempt' as number, occurred_at
from timeline
where execution_id = $1 and type = 'attempt.resumed'
order by entry_id
limit 100;

-- name: evidence_of_inbox
-- purpose: hop 8, the events that nodes reported for an execution
select
    inbox.event_id::text, inbox.attempt_id::text, inbox.kind, inbox.accepted, inbox.reason,
    inbox.duplicate_count, inbox.received_at
from attempt_inbox as inbox
inner join attempts as attempt using (attempt_id)
where attempt.execution_id = $1
order by inbox.received_at
limit 500;

-- name: evidence_of_callbacks
-- purpose: hop 9, the callbacks of an execution
select
    count(*) as total,
    count(*) filter (where status = 'PUBLISHED') as done,
    count(*) filter (where status in ('DEAD', 'QUARANTINED')) as dead,
    max(published_at) as durable_at,
    max(sequence) filter (where status = 'PUBLISHED') as delivered_sequence,
    coalesce(sum(attempts), 0)::integer as failures,
    coalesce(sum(greatest(claims - 1, 0)), 0)::integer as takeovers,
    max(last_error) filter (where status <> 'PUBLISHED') as open_error
from callback_deliveries
where execution_id = $1;

-- name: database_time
-- purpose: tells the time by the database's clock
select tdp_now() as now;
