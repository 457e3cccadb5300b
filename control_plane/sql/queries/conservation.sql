-- The equations of conservation, one statement each: key by key those of
-- core/conservation/domain.py. $1 and $2 bound the window where there is one. Each counts both
-- sides in one snapshot and names what differs. The window is found by id, through the primary key:
-- ids begin with the time of the process that made them, so it is read with a margin and then cut by
-- the database's own times.

-- name: conservation_answered
-- purpose: every task that a CreateTask was answered with is stored
with answered as (
    select answer::json ->> 'task_id' as task_id
    from idempotency_records
    where
        created_at >= $1::timestamptz
        and created_at < $2::timestamptz
        and operation = 'CreateTask'
),
judged as (
    select
        answered.task_id,
        exists (
            select from tasks where tasks.task_id = answered.task_id::uuid
        ) as holds
    from answered
)
select
    count(*) as left_count,
    count(*) filter (where holds) as right_count,
    (array_agg(task_id order by task_id) filter (where not holds))[1:100] as differing_ids
from judged;

-- name: conservation_accepted
-- purpose: every task of the window has its newest run as its current execution
with judged as (
    select
        task.task_id,
        coalesce(
            execution.task_id = task.task_id
            and execution.run = task.current_run
            and not exists (
                select from executions as later
                where later.task_id = task.task_id and later.run > task.current_run
            ),
            false
        ) as holds
    from tasks as task
    left join executions as execution on execution.execution_id = task.current_execution_id
    where
        task.task_id >= id_at($1::timestamptz - interval '15 minutes')
        and task.task_id < id_at($2::timestamptz + interval '15 minutes')
        and task.created_at >= $1::timestamptz
        and task.created_at < $2::timestamptz
)
select
    count(*) as left_count,
    count(*) filter (where holds) as right_count,
    (array_agg(task_id::text order by task_id) filter (where not holds))[1:100] as differing_ids
from judged;

-- name: conservation_moving
-- purpose: every live execution has something that will move it, or is shown as standing
with judged as (
    select
        execution.execution_id,
        (
            execution.next_due_at is not null
            or execution.paused
            or execution.quarantined_at is not null
            or exists (
                select from scheduling_requests as request
                where
                    request.execution_id = execution.execution_id
                    and request.status in ('PENDING', 'CLAIMED')
            )
            or exists (
                select from attempts as attempt
                where
                    attempt.execution_id = execution.execution_id
                    and attempt.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
            )
            or exists (
                select from steps as step
                where step.execution_id = execution.execution_id and step.status = 'WAITING'
            )
        ) as holds
    from executions as execution
    where execution.completed_at is null
)
select
    count(*) as left_count,
    count(*) filter (where holds) as right_count,
    (array_agg(execution_id::text order by execution_id) filter (where not holds))[1:100]
        as differing_ids
from judged;

-- name: conservation_leftovers
-- purpose: executions that ended in the window have no open request and no live attempt
with judged as (
    select
        execution.execution_id,
        not exists (
            select from scheduling_requests as request
            where
                request.execution_id = execution.execution_id
                and request.status in ('PENDING', 'CLAIMED')
        )
        and not exists (
            select from attempts as attempt
            where
                attempt.execution_id = execution.execution_id
                and attempt.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
        ) as holds
    from executions as execution
    where
        execution.completed_at is not null
        and execution.completed_at >= $1::timestamptz
        and execution.completed_at < $2::timestamptz
)
select
    count(*) as left_count,
    count(*) filter (where holds) as right_count,
    (array_agg(execution_id::text order by execution_id) filter (where not holds))[1:100]
        as differing_ids
from judged;

-- name: conservation_events
-- purpose: the events of the window's executions are contiguous from 1
with judged as (
    select
        execution.execution_id, execution.last_sequence,
        event.stored_count,
        event.stored_count = execution.last_sequence
        and event.newest = execution.last_sequence as holds
    from executions as execution
    cross join lateral (
        select count(*) as stored_count, coalesce(max(sequence), 0) as newest
        from execution_events
        where execution_events.execution_id = execution.execution_id
    ) as event
    where
        execution.execution_id >= id_at($1::timestamptz - interval '15 minutes')
        and execution.execution_id < id_at($2::timestamptz + interval '15 minutes')
        and execution.created_at >= $1::timestamptz
        and execution.created_at < $2::timestamptz
)
select
    coalesce(sum(last_sequence), 0)::bigint as left_count,
    coalesce(sum(stored_count), 0)::bigint as right_count,
    (array_agg(execution_id::text order by execution_id) filter (where not holds))[1:100]
        as differing_ids
from judged;

-- name: conservation_callbacks
-- purpose: each event of the window's executions with an endpoint has exactly one callback
with judged as (
    select
        execution.execution_id, execution.last_sequence,
        callback.stored_count,
        callback.stored_count = execution.last_sequence
        and callback.distinct_count = execution.last_sequence
        and callback.newest = execution.last_sequence as holds
    from executions as execution
    inner join tasks as task on task.task_id = execution.task_id and task.callback_url <> ''
    cross join lateral (
        select
            count(*) as stored_count,
            count(distinct sequence) as distinct_count,
            coalesce(max(sequence), 0) as newest
        from callback_deliveries
        where callback_deliveries.execution_id = execution.execution_id
    ) as callback
    where
        execution.execution_id >= id_at($1::timestamptz - interval '15 minutes')
        and execution.execution_id < id_at($2::timestamptz + interval '15 minutes')
        and execution.created_at >= $1::timestamptz
        and execution.created_at < $2::timestamptz
)
select
    coalesce(sum(last_sequence), 0)::bigint as left_count,
    coalesce(sum(stored_count), 0)::bigint as right_count,
    (array_agg(execution_id::text order by execution_id) filter (where not holds))[1:100]
        as differing_ids
from judged;

-- name: conservation_commands
-- purpose: each attempt of the window has one RUN command, whose state fits the attempt's
with judged as (
    select
        attempt.attempt_id,
        coalesce(
            command.command_count = 1
            and case command.status
                when 'ACKED' then attempt.status <> 'DISPATCHED'
                when 'VOIDED' then attempt.status not in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
                when 'PENDING' then attempt.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
                else true
            end,
            false
        ) as holds
    from attempts as attempt
    cross join lateral (
        select count(*) as command_count, min(status) as status
        from node_commands
        where node_commands.attempt_id = attempt.attempt_id and node_commands.kind = 'RUN'
    ) as command
    where
        attempt.attempt_id >= id_at($1::timestamptz - interval '15 minutes')
        and attempt.attempt_id < id_at($2::timestamptz + interval '15 minutes')
        and attempt.dispatched_at >= $1::timestamptz
        and attempt.dispatched_at < $2::timestamptz
)
select
    count(*) as left_count,
    count(*) filter (where holds) as right_count,
    (array_agg(attempt_id::text order by attempt_id) filter (where not holds))[1:100]
        as differing_ids
from judged;

-- name: conservation_results
-- purpose: each success of the window's attempts stands on exactly one accepted report
with judged as (
    select
        attempt.attempt_id,
        attempt.status = 'SUCCEEDED' as succeeded,
        report.accepted_count,
        case
            when attempt.status = 'SUCCEEDED'
                then report.accepted_count = 1 and report.lease_version = attempt.lease_version
            else report.accepted_count <= 1
        end as holds
    from attempts as attempt
    cross join lateral (
        select count(*) as accepted_count, min(lease_version) as lease_version
        from attempt_inbox
        where
            attempt_inbox.attempt_id = attempt.attempt_id
            and attempt_inbox.kind = 'SUCCEEDED'
            and attempt_inbox.accepted
    ) as report
    where
        attempt.attempt_id >= id_at($1::timestamptz - interval '15 minutes')
        and attempt.attempt_id < id_at($2::timestamptz + interval '15 minutes')
        and attempt.dispatched_at >= $1::timestamptz
        and attempt.dispatched_at < $2::timestamptz
)
select
    count(*) filter (where succeeded) as left_count,
    coalesce(sum(accepted_count) filter (where succeeded), 0)::bigint as right_count,
    (array_agg(attempt_id::text order by attempt_id) filter (where not holds))[1:100]
        as differing_ids
from judged;

-- name: conservation_slots
-- purpose: each node is counted to run what runs there
with judged as (
    select
        node.node_id, node.running_count, holding.attempt_count,
        node.running_count = holding.attempt_count
        and node.process_running_count = holding.process_count as holds
    from nodes as node
    cross join lateral (
        select
            count(*) as attempt_count,
            count(*) filter (where takes_process_slot) as process_count
        from attempts
        where
            attempts.node_id = node.node_id
            and attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
            and attempts.pending_result is null
    ) as holding
)
select
    coalesce(sum(running_count), 0)::bigint as left_count,
    coalesce(sum(attempt_count), 0)::bigint as right_count,
    (array_agg(node_id::text order by node_id) filter (where not holds))[1:100] as differing_ids
from judged;
