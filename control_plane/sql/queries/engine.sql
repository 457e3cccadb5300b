-- The engine's driver. An execution's steps change only under its row lock, so two statements
-- see one state: the first takes the locks, the second, whose snapshot is newer, reads.

-- name: lock_executions
-- purpose: locks executions that may be advanced, with what their events and requests need
-- Left out are those that are over, set aside, or waiting for another try after a failure.
select
    execution.execution_id::text, execution.task_id::text, execution.application_id::text,
    execution.run, execution.status, execution.closing_as, execution.paused,
    execution.progress_percent, execution.progress_event_at, execution.last_sequence,
    execution.snapshot_digest, execution.deadline_at, execution.next_due_at,
    execution.advance_failures, execution.failure,
    task.external_ref, task.input, task.priority, task.callback_url <> '' as with_callback
from executions as execution
inner join tasks as task on task.task_id = execution.task_id
where execution.execution_id = any($1::uuid[])
    and execution.completed_at is null
    and execution.quarantined_at is null
    and (execution.advance_failures = 0 or execution.next_due_at <= (select tdp_now()))
order by execution.execution_id
for update of execution;

-- name: load_steps
-- purpose: reads all step instances of locked executions, and the time
-- An execution without steps answers one row whose step is null.
with moment as materialized (
    select tdp_now() as now
)
select
    given.execution_id::text, moment.now,
    step.step_key, step.item_index, step.status, step.attempt_number, step.progress_percent,
    step.input, step.output, step.failure, step.not_before, step.deadline_at, step.ready_at,
    case when step.status = 'READY' then exists (
        select 1
        from scheduling_requests as request
        where request.execution_id = step.execution_id
            and request.step_key = step.step_key
            and request.item_index = step.item_index
            and request.attempt_number = step.attempt_number
    ) else false end as has_request,
    case when step.status = 'RUNNING' then (
        select attempt.stop_reason
        from attempts as attempt
        where attempt.execution_id = step.execution_id
            and attempt.step_key = step.step_key
            and attempt.item_index = step.item_index
            and attempt.number = step.attempt_number
    ) end as stop_reason
from unnest($1::uuid[]) as given (execution_id)
cross join moment
left join steps as step on step.execution_id = given.execution_id;

-- name: read_snapshots
-- purpose: reads frozen definitions
select digest, definition
from workflow_snapshots
where digest = any($1::text[]);

-- name: apply_decisions
-- purpose: writes what was decided for a batch of locked executions, all but their events
-- $1–$15: steps to create (is_new) and to change; $16–$25: requests to make, $26–$29 to void;
-- $30–$40: executions. A request that is being dispatched just now is locked and is not voided
-- here: its dispatch waits for the execution, sees the step and voids it itself.
with change as materialized (
    select *
    from unnest(
        $1::boolean[], $2::uuid[], $3::text[], $4::integer[], $5::integer[], $6::text[],
        $7::integer[], $8::integer[], $9::text[], $10::text[], $11::text[], $12::text[],
        $13::text[], $14::timestamptz[], $15::timestamptz[]
    ) as given (
        is_new, execution_id, step_key, item_index, position, status,
        attempt_number, progress_percent, capability, capability_version, input, output,
        failure, deadline_at, ready_at
    )
),
moment as materialized (
    select tdp_now() as now
),
created as (
    insert into steps (
        execution_id, step_key, item_index, position, status, attempt_number, progress_percent,
        capability, capability_version, input, output, failure, deadline_at, ready_at,
        completed_at
    )
    select
        execution_id, step_key, item_index, position, status, attempt_number, progress_percent,
        capability, capability_version, input, output, failure, deadline_at, ready_at,
        case
            when status in ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'SKIPPED')
                then moment.now
        end
    from change, moment
    where is_new
),
moved as (
    update steps
    set
        status = change.status,
        attempt_number = change.attempt_number,
        progress_percent = change.progress_percent,
        input = change.input,
        output = change.output,
        failure = change.failure,
        deadline_at = change.deadline_at,
        ready_at = change.ready_at,
        completed_at = case
            when change.status in ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'SKIPPED')
                then coalesce(steps.completed_at, moment.now)
        end
    from change, moment
    where not change.is_new
        and steps.execution_id = change.execution_id
        and steps.step_key = change.step_key
        and steps.item_index = change.item_index
),
requested as (
    insert into scheduling_requests (
        execution_id, step_key, item_index, attempt_number, application_id, priority,
        capability, capability_version, requirement, available_at, limits
    )
    select
        given.execution_id, given.step_key, given.item_index, given.attempt_number,
        execution.application_id, given.priority, given.capability, given.capability_version,
        given.requirement, given.available_at, given.limits
    from unnest(
        $16::uuid[], $17::text[], $18::integer[], $19::integer[], $20::integer[], $21::text[],
        $22::text[], $23::text[], $24::timestamptz[], $25::text[]
    ) as given (
        execution_id, step_key, item_index, attempt_number, priority, capability,
        capability_version, requirement, available_at, limits
    )
    inner join executions as execution on execution.execution_id = given.execution_id
    on conflict do nothing
),
unwanted as materialized (
    select request.execution_id, request.step_key, request.item_index, request.attempt_number
    from unnest($26::uuid[], $27::text[], $28::integer[], $29::integer[]) as given (
        execution_id, step_key, item_index, attempt_number
    )
    inner join scheduling_requests as request
        on request.execution_id = given.execution_id
        and request.step_key = given.step_key
        and request.item_index = given.item_index
        and request.attempt_number = given.attempt_number
    where request.status in ('PENDING', 'CLAIMED')
    for update of request skip locked
),
voided as (
    update scheduling_requests
    set status = 'VOIDED', claim_id = null
    from unwanted
    where scheduling_requests.execution_id = unwanted.execution_id
        and scheduling_requests.step_key = unwanted.step_key
        and scheduling_requests.item_index = unwanted.item_index
        and scheduling_requests.attempt_number = unwanted.attempt_number
)
update executions
set
    status = given.status,
    closing_as = given.closing_as,
    progress_percent = given.progress_percent,
    version = executions.version + given.version_added,
    last_sequence = given.last_sequence,
    output = given.output,
    failure = given.failure,
    next_due_at = given.next_due_at,
    progress_event_at = case
        when given.tells_progress then moment.now else executions.progress_event_at
    end,
    started_at = case
        when given.has_started then coalesce(executions.started_at, moment.now)
        else executions.started_at
    end,
    completed_at = case
        when given.status in ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') then moment.now
    end,
    advance_error = null,
    advance_failures = 0
from unnest(
    $30::uuid[], $31::text[], $32::text[], $33::integer[], $34::integer[], $35::bigint[],
    $36::text[], $37::text[], $38::timestamptz[], $39::boolean[], $40::boolean[]
) as given (
    execution_id, status, closing_as, progress_percent, version_added, last_sequence,
    output, failure, next_due_at, tells_progress, has_started
), moment
where executions.execution_id = given.execution_id;

-- name: note_failures
-- purpose: keeps why advances failed, and puts off the next try; sets aside what keeps failing
-- $1: executions, $2: their errors. $3: the wait after the first failure, doubled by each further
-- one up to $4. $5: after how many failures an execution is set aside.
with target as materialized (
    select executions.execution_id, given.error
    from executions
    inner join unnest($1::uuid[], $2::text[]) as given (execution_id, error)
        on given.execution_id = executions.execution_id
    where executions.completed_at is null
    order by executions.execution_id
    for update of executions
)
update executions
set
    advance_error = target.error,
    advance_failures = executions.advance_failures + 1,
    next_due_at = tdp_now() + least($4::interval, $3::interval * 2 ^ least(executions.advance_failures, 20)),
    quarantined_at = case
        when executions.advance_failures + 1 >= $5 then tdp_now()
        else executions.quarantined_at
    end
from target
where executions.execution_id = target.execution_id;

-- name: due_executions
-- purpose: names the executions that are due, and after them those that will be
select
    execution_id::text,
    extract(epoch from next_due_at - (select tdp_now()))::float8 as due_in_s
from executions
where next_due_at is not null
    and completed_at is null
    and quarantined_at is null
order by next_due_at
limit $1;
