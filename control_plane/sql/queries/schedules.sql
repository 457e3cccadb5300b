-- name: lock_application
-- purpose: locks an application, so that its schedules are counted and added by one at a time
select true as found from applications where application_id = $1 for no key update;

-- name: count_schedules
-- purpose: counts an application's schedules
select count(*) from schedules where application_id = $1 and deleted_at is null;

-- name: schedule_of_name
-- purpose: names the application's schedule of a name
select schedule_id::text from schedules
where application_id = $1 and name = $2 and deleted_at is null;

-- name: insert_schedule
-- purpose: stores a schedule
insert into schedules (
    schedule_id, application_id, name, cron, time_zone, overlap, catch_up, task, paused, next_time
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: shown_schedules
-- purpose: reads schedules with their newest runs: one by id, or a page, newest first
select
    schedule.schedule_id::text, schedule.application_id::text, schedule.name, schedule.cron,
    schedule.time_zone, schedule.overlap, schedule.catch_up, schedule.task, schedule.version,
    schedule.paused, schedule.pause_reason, schedule.paused_by, schedule.next_time,
    schedule.created_at, schedule.updated_at, schedule.deleted_at,
    run.run_id::text, run.due_at, run.triggered, run.status, run.reason, run.task_id::text,
    run.failure_count, run.available_at, run.settled_at
from schedules as schedule
left join lateral (
    select * from schedule_runs
    where schedule_runs.schedule_id = schedule.schedule_id
    order by due_at desc, run_id desc
    limit 1
) as run on true
where
    ($1::uuid is null or schedule.schedule_id = $1)
    and ($2::uuid is null or schedule.application_id = $2)
    and ($3::uuid is null or schedule.schedule_id < $3)
    and ($4 = '' or schedule.name = $4)
    and ($5 or schedule.deleted_at is null)
order by schedule.schedule_id desc
limit $6;

-- name: lock_schedule
-- purpose: locks a schedule that is not deleted, and reads what a change decides about
select
    schedule_id::text, version, paused, cron, time_zone, overlap, catch_up, task,
    tdp_now() as now
from schedules
where schedule_id = $1 and ($2::uuid is null or application_id = $2) and deleted_at is null
for update;

-- name: update_schedule
-- purpose: replaces what a schedule does
update schedules
set
    cron = $2,
    time_zone = $3,
    overlap = $4,
    catch_up = $5,
    task = $6,
    next_time = $7,
    version = version + 1,
    updated_at = tdp_now()
where schedule_id = $1;

-- name: set_schedule_paused
-- purpose: pauses a schedule, or lets it go on with its next due time
update schedules
set
    paused = $2,
    pause_reason = $3,
    paused_by = $4,
    next_time = $5,
    version = version + 1,
    updated_at = tdp_now()
where schedule_id = $1;

-- name: delete_schedule
-- purpose: ends a schedule, and its runs that no task can exist of yet
with ended as (
    update schedules
    set deleted_at = tdp_now(), next_time = null, version = version + 1, updated_at = tdp_now()
    where schedule_id = $1
)
update schedule_runs
set
    status = 'SKIPPED',
    reason = 'The schedule was deleted.',
    available_at = null,
    settled_at = tdp_now()
where schedule_id = $1 and available_at is not null and claim_id is null;

-- name: insert_triggered_run
-- purpose: adds a run that is due now
insert into schedule_runs (run_id, schedule_id, due_at, triggered, status, task, available_at)
select $2, schedule_id, tdp_now(), true, 'PENDING', task, tdp_now()
from schedules
where schedule_id = $1;

-- name: shown_runs
-- purpose: reads runs: one by id, or a page of a schedule's, newest first
select
    run_id::text, schedule_id::text, due_at, triggered, status, reason, task_id::text,
    failure_count, available_at, settled_at
from schedule_runs
where
    ($1::uuid is null or run_id = $1)
    and ($2::uuid is null or schedule_id = $2)
    and ($3::timestamptz is null or (due_at, run_id) < ($3, $4::uuid))
order by due_at desc, run_id desc
limit $5;

-- name: database_now
-- purpose: reads the time that decides what is due
select tdp_now() as now;
