-- Removing what is over. Each pass walks an index from its oldest entry on, a bounded number of rows
-- a batch, and remembers where it stopped: rows that have to stay are not looked at again and again.
-- Locks come in the order of all others: the task, its executions; what hangs on them changes under
-- their lock only. Whoever is at work on one has it locked, and it is passed over.

-- name: finished_tasks
-- purpose: walks the executions that ended, oldest first
-- $1: age. $2, $3: after which one, null at first. $4: how many.
select execution_id::text, task_id, completed_at
from executions
where
    completed_at is not null
    and completed_at < (select tdp_now()) - $1::interval
    and (completed_at, execution_id) > (
        coalesce($2::timestamptz, '-infinity'),
        coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
    )
order by completed_at, execution_id
limit $4::integer;

-- name: lock_old_tasks
-- purpose: locks those of some tasks that nobody else is at work on
select task_id
from tasks
where task_id = any($1::uuid[])
order by task_id
for update skip locked;

-- name: lock_old_executions
-- purpose: locks all executions of locked tasks; the caller's next statement sees them as they are
select execution_id
from executions
where task_id = any($1::uuid[])
order by execution_id
for update;

-- name: removable_executions
-- purpose: names the executions of locked tasks of which nothing is live and nothing left to tell
-- $2: age.
with judged as (
    select
        execution.task_id,
        bool_and(
            execution.completed_at is not null
            and execution.completed_at < (select tdp_now()) - $2::interval
            and not exists (
                select from callback_deliveries as callback
                where
                    callback.execution_id = execution.execution_id
                    and callback.status <> 'PUBLISHED'
            )
            and not exists (
                select from outbox_events as event
                where
                    event.execution_id = execution.execution_id
                    and event.status <> 'PUBLISHED'
            )
            and not exists (
                select
                from attempts as attempt
                inner join artifact_commits as settlement
                    on settlement.outbox_id = attempt.attempt_id
                where
                    attempt.execution_id = execution.execution_id
                    and settlement.status <> 'PUBLISHED'
            )
        ) as removable
    from executions as execution
    where execution.task_id = any($1::uuid[])
    group by execution.task_id
)
select execution.execution_id, execution.task_id
from executions as execution
inner join judged on judged.task_id = execution.task_id and judged.removable;

-- name: remove_tasks
-- purpose: removes tasks with their executions and all that hangs on them
-- $1: the tasks, $2: all their executions; both are locked.
with attempt as (
    delete from attempts where execution_id = any($2::uuid[]) returning attempt_id
),
request as (
    delete from scheduling_requests where execution_id = any($2::uuid[])
),
step as (
    delete from steps where execution_id = any($2::uuid[])
),
event as (
    delete from execution_events where execution_id = any($2::uuid[])
),
entry as (
    delete from timeline where execution_id = any($2::uuid[])
),
wake_up as (
    delete from outbox_events where execution_id = any($2::uuid[])
),
callback as (
    delete from callback_deliveries where execution_id = any($2::uuid[])
),
command as (
    delete from node_commands where attempt_id in (select attempt_id from attempt)
),
report as (
    delete from attempt_inbox where attempt_id in (select attempt_id from attempt)
),
given as (
    delete from grants where attempt_id in (select attempt_id from attempt)
),
place as (
    delete from artifacts where attempt_id in (select attempt_id from attempt)
),
settlement as (
    delete from artifact_commits where outbox_id in (select attempt_id from attempt)
),
execution as (
    delete from executions where execution_id = any($2::uuid[])
)
delete from tasks where task_id = any($1::uuid[]);

-- name: remove_records
-- purpose: removes old records of tasks that are gone; answers where the walk stopped
-- $1: age. $2, $3: after which one, null at first. $4: how many. A record without a task stays: what
-- it answers for (an application, a key) stays too.
with walked as materialized (
    select
        ctid as place, created_at, key,
        case when pg_input_is_valid(answer, 'json') then answer::json ->> 'task_id' end as task_id
    from idempotency_records
    where
        created_at < (select tdp_now()) - $1::interval
        and (created_at, key) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::text, ''))
    order by created_at, key
    limit $4::integer
),
removed as (
    delete from idempotency_records as record
    using walked
    where
        record.ctid = walked.place
        and walked.task_id is not null
        -- Asked row by row, through the primary key: a join would read all tasks.
        and (select count(*) from tasks where tasks.task_id = walked.task_id::uuid) = 0
    returning 1
)
select
    (select count(*) from removed) as removed_count,
    (select count(*) from walked) as walked_count,
    last.created_at as moment, last.key
from (select 1) as always
left join (
    select created_at, key from walked order by created_at desc, key desc limit 1
) as last on true;

-- name: remove_uncommitted
-- purpose: removes old places of artifacts that were never committed, of attempts that are over
-- $1: age. $2, $3: after which one, null at first. $4: how many. The bytes are their owner's, who
-- removes them by a rule of its own.
with walked as materialized (
    select ctid as place, attempt_id, boot_id, relative_path, created_at
    from artifacts
    where
        status <> 'COMMITTED'
        and created_at < (select tdp_now()) - $1::interval
        and (created_at, attempt_id) > (
            coalesce($2::timestamptz, '-infinity'),
            coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
        )
    order by created_at, attempt_id
    limit $4::integer
),
removed as (
    delete from artifacts as artifact
    using walked
    where
        artifact.attempt_id = walked.attempt_id
        and artifact.boot_id = walked.boot_id
        and artifact.relative_path = walked.relative_path
        and artifact.status <> 'COMMITTED'
        and not exists (
            select from attempts
            where attempts.attempt_id = walked.attempt_id and attempts.completed_at is null
        )
    returning 1
)
select
    (select count(*) from removed) as removed_count,
    (select count(*) from walked) as walked_count,
    last.created_at as moment, last.attempt_id::text as key
from (select 1) as always
left join (
    select created_at, attempt_id from walked order by created_at desc, attempt_id desc limit 1
) as last on true;
