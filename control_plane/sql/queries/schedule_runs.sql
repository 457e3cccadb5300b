-- name: lock_due_schedules
-- purpose: locks schedules whose due time has come, leaving out those that another replica handles
select
    schedule_id::text, cron, time_zone, overlap, catch_up, task, next_time, tdp_now() as now
from schedules
where next_time <= (select tdp_now())
order by next_time, schedule_id
limit $1
for update skip locked;

-- name: store_due_runs
-- purpose: makes runs of due times, moves their schedules on, and drops all but the newest history
with given as (
    select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::text[])
        as run (run_id, schedule_id, due_at, status, reason, task)
),
added as (
    insert into schedule_runs (
        run_id, schedule_id, due_at, triggered, status, reason, task, available_at, settled_at
    )
    select
        run_id, schedule_id, due_at, false, status, reason, task,
        case when status = 'PENDING' then tdp_now() end,
        case when status <> 'PENDING' then tdp_now() end
    from given
    on conflict (schedule_id, due_at) where not triggered do nothing
),
moved as (
    update schedules set next_time = plan.next_time
    from unnest($7::uuid[], $8::timestamptz[]) as plan (schedule_id, next_time)
    where schedules.schedule_id = plan.schedule_id
)
delete from schedule_runs
using unnest($7::uuid[]) as planned (schedule_id)
where
    schedule_runs.schedule_id = planned.schedule_id
    and schedule_runs.available_at is null
    and not schedule_runs.live
    and (schedule_runs.due_at, schedule_runs.run_id) < (
        select kept.due_at, kept.run_id
        from schedule_runs as kept
        where kept.schedule_id = planned.schedule_id
        order by kept.due_at desc, kept.run_id desc
        offset $9 - 1
        limit 1
    );

-- name: lock_schedules_with_due_runs
-- purpose: locks the schedules of runs that are to be looked at, one replica for each
select schedule_id::text, overlap
from schedules
where schedule_id in (
    select run.schedule_id
    from schedule_runs as run
    where run.available_at <= (select tdp_now())
    order by run.available_at
    limit $1
)
order by schedule_id
for update skip locked;

-- name: forget_ended_tasks
-- purpose: notes which tasks of the given schedules are over, or gone
update schedule_runs
set live = false
where
    schedule_id = any($1::uuid[])
    and live
    and not exists (
        select from tasks
        inner join executions on executions.execution_id = tasks.current_execution_id
        where tasks.task_id = schedule_runs.task_id and executions.completed_at is null
    );

-- name: open_runs
-- purpose: reads what is not over of the given schedules: runs to decide about, and live tasks
select
    run.run_id::text, run.schedule_id::text, run.due_at, run.triggered, run.task,
    run.task_id::text, run.failure_count,
    run.claim_id is not null and run.available_at is not null as starting,
    run.available_at <= tdp_now() as due,
    run.available_at is null as settled,
    schedule.application_id::text, schedule.catch_up, schedule.deleted_at is not null as deleted
from schedule_runs as run
inner join schedules as schedule using (schedule_id)
where run.schedule_id = any($1::uuid[]) and (run.live or run.available_at is not null)
order by run.due_at, run.run_id;

-- name: claim_runs
-- purpose: claims runs whose tasks are about to be created
update schedule_runs
set
    status = 'PENDING',
    claim_id = $2,
    available_at = tdp_now() + make_interval(secs => $3)
where run_id = any($1::uuid[]);

-- name: move_runs
-- purpose: lets runs wait for an earlier task, or leaves them out
update schedule_runs
set
    status = given.status,
    reason = given.reason,
    available_at = case when given.status = 'WAITING' then tdp_now() + make_interval(secs => $4) end,
    settled_at = case when given.status <> 'WAITING' then tdp_now() end
from unnest($1::uuid[], $2::text[], $3::text[]) as given (run_id, status, reason)
where schedule_runs.run_id = given.run_id;

-- name: settle_runs
-- purpose: notes what became of claimed runs: their task, a final refusal, or when to try again
-- A run whose claim was taken over is noted all the same if its task exists: it is the same task.
update schedule_runs
set
    status = given.status,
    reason = given.reason,
    task_id = given.task_id,
    live = given.task_id is not null,
    failure_count = failure_count + case when given.task_id is null then 1 else 0 end,
    available_at = case
        when given.status = 'PENDING' then tdp_now() + make_interval(secs => given.retry_in_s)
    end,
    settled_at = case when given.status <> 'PENDING' then tdp_now() end
from unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::float8[])
    as given (run_id, status, reason, task_id, retry_in_s)
where
    schedule_runs.run_id = given.run_id
    and schedule_runs.available_at is not null
    and (schedule_runs.claim_id = $6 or given.task_id is not null);

-- name: next_due_in_s
-- purpose: tells in how many seconds a schedule is due, or a run is to be looked at; null for never
select
    extract(epoch from least(
        (select min(next_time) from schedules where next_time is not null),
        (select min(available_at) from schedule_runs where available_at is not null)
    ) - tdp_now())::float8 as due_in_s;

-- name: runs_now
-- purpose: reads the time that decides what is due
select tdp_now() as now;
