-- Ending attempts: the statements of outcome_writer.py, used by inbox, lease sweep, stop orders
-- and settlements. Locks are taken in this order: executions, attempts, nodes, each by ascending id.

-- name: lock_executions_of_attempts
-- purpose: locks the executions of some attempts, so that nothing but leases and acks changes below them
select execution_id
from executions
where execution_id in (select execution_id from attempts where attempt_id = any($1::uuid[]))
order by execution_id
for update;

-- name: lock_attempts
-- purpose: locks attempts and reads all that decides what their end does
-- The executions are locked before, in a statement of their own, so that this one sees the newest
-- steps.
select
    attempt.attempt_id, attempt.execution_id, attempt.step_key, attempt.item_index, attempt.number,
    attempt.task_id, attempt.application_id, attempt.node_id, attempt.lease_version,
    attempt.status, attempt.stop_reason, attempt.pending_result, attempt.holds_slots,
    step.status as step_status, step.attempt_number as step_attempt_number,
    step.failure_count, step.loss_count, step.ready_at,
    step.capability, step.capability_version,
    (
        execution.closing_as is not null
        or execution.status not in ('CREATED', 'QUEUED', 'RUNNING')
    ) as closing,
    execution.status not in ('CREATED', 'QUEUED', 'RUNNING') as canceling,
    execution.snapshot_digest,
    tdp_now() as now
from attempts as attempt
inner join steps as step
    on step.execution_id = attempt.execution_id
    and step.step_key = attempt.step_key
    and step.item_index = attempt.item_index
inner join executions as execution on execution.execution_id = attempt.execution_id
where attempt.attempt_id = any($1::uuid[])
order by attempt.attempt_id
for update of attempt;

-- name: end_attempts
-- purpose: writes everything that the end of some attempts changes, for all of them at once
-- No attempt occurs twice. A row with a pending result stays RUNNING without a lease. step_status
-- is null where the step instance is not to be touched; retry_at is set for READY only.
-- $24: whether the engine is to look at the executions. $25: the ends of the attempts' logs.
with ended as materialized (
    select *
    from unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::integer[], $6::text[], $7::text[],
        $8::text[], $9::boolean[], $10::boolean[], $11::text[], $12::text[], $13::text[],
        $14::integer[], $15::text[], $16::text[], $17::integer[], $18::integer[],
        $19::timestamptz[], $20::timestamptz[], $21::text[], $22::text[], $23::uuid[],
        $25::text[]
    ) as given (
        attempt_id, execution_id, step_key, item_index, number, status, failure,
        usage, frees_capacity, needs_cancel, pending_result, commit_payload, step_status,
        step_attempt_number, step_output, step_failure, failure_count, loss_count,
        retry_at, deadline_at, timeline_type, timeline_detail, command_id, log_tail
    )
),
moment as materialized (
    select tdp_now() as now
),
step as (
    update steps
    set
        status = ended.step_status,
        attempt_number = ended.step_attempt_number,
        failure_count = ended.failure_count,
        loss_count = ended.loss_count,
        output = ended.step_output,
        failure = ended.step_failure,
        progress_percent = case
            when ended.step_status = 'SUCCEEDED' then 100
            when ended.step_status = 'READY' then 0
            else steps.progress_percent
        end,
        not_before = ended.retry_at,
        deadline_at = ended.deadline_at,
        completed_at = case when ended.step_status <> 'READY' then moment.now end
    from ended, moment
    where steps.execution_id = ended.execution_id
        and steps.step_key = ended.step_key
        and steps.item_index = ended.item_index
        and ended.step_status is not null
),
request as (
    insert into scheduling_requests (
        execution_id, step_key, item_index, attempt_number, application_id, priority,
        capability, capability_version, requirement, available_at, limits
    )
    select
        ended.execution_id, ended.step_key, ended.item_index, ended.step_attempt_number,
        before.application_id, before.priority, before.capability, before.capability_version,
        before.requirement, ended.retry_at, before.limits
    from ended
    inner join scheduling_requests as before
        on before.execution_id = ended.execution_id
        and before.step_key = ended.step_key
        and before.item_index = ended.item_index
        and before.attempt_number = ended.number
    where ended.retry_at is not null
    on conflict do nothing
),
execution as (
    update executions
    set next_due_at = moment.now
    from moment
    where $24::boolean
        and executions.execution_id in (select execution_id from ended)
        and executions.completed_at is null
),
attempt as (
    update attempts
    set
        status = ended.status,
        failure = ended.failure,
        usage = coalesce(ended.usage, attempts.usage),
        log_tail = ended.log_tail,
        pending_result = ended.pending_result,
        lease_expires_at = null,
        run_deadline_at = case when ended.pending_result is null then attempts.run_deadline_at end,
        progress_percent = case
            when ended.status = 'SUCCEEDED' then 100 else attempts.progress_percent
        end,
        accepted_at = case
            when ended.status in ('SUCCEEDED', 'RUNNING')
                then coalesce(attempts.accepted_at, moment.now)
            else attempts.accepted_at
        end,
        started_at = case
            when ended.status in ('SUCCEEDED', 'RUNNING')
                then coalesce(attempts.started_at, moment.now)
            else attempts.started_at
        end,
        completed_at = case when ended.pending_result is null then moment.now end
    from ended, moment
    where attempts.attempt_id = ended.attempt_id
    returning
        attempts.attempt_id, attempts.node_id, attempts.lease_version, attempts.application_id,
        attempts.reserved_cpu_millis, attempts.reserved_memory_bytes,
        attempts.reserved_disk_bytes, attempts.reserved_gpu_count, attempts.takes_process_slot,
        ended.frees_capacity, ended.needs_cancel, ended.command_id
),
committing as (
    insert into artifact_commits (outbox_id, destination, payload, execution_id, application_id)
    select
        ended.attempt_id, attempt.application_id::text, ended.commit_payload, ended.execution_id,
        attempt.application_id
    from ended
    inner join attempt on attempt.attempt_id = ended.attempt_id
    where ended.commit_payload is not null
    on conflict do nothing
),
told as (
    insert into timeline (execution_id, step_key, item_index, attempt_id, type, actor, detail)
    select execution_id, step_key, item_index, attempt_id, timeline_type, 'nodes', timeline_detail
    from ended
    where timeline_type <> ''
    order by attempt_id
),
voided as (
    -- What was not sent yet needs no order to stop, and is never sent.
    update node_commands
    set status = 'VOIDED'
    where attempt_id in (select attempt_id from ended)
        and kind in ('RUN', 'EXTEND')
        and status = 'PENDING'
    returning attempt_id, kind
),
cancel as materialized (
    select
        attempt.node_id, attempt.attempt_id, attempt.lease_version, attempt.command_id,
        row_number() over (partition by attempt.node_id order by attempt.attempt_id) as place
    from attempt
    where attempt.needs_cancel
        and attempt.attempt_id not in (select attempt_id from voided where kind = 'RUN')
),
freed as materialized (
    select
        attempt.node_id,
        count(*) filter (where attempt.frees_capacity) as attempt_count,
        count(*) filter (
            where attempt.frees_capacity and attempt.takes_process_slot
        ) as process_count,
        sum(attempt.reserved_cpu_millis) filter (where attempt.frees_capacity) as cpu_millis,
        sum(attempt.reserved_memory_bytes) filter (where attempt.frees_capacity) as memory_bytes,
        sum(attempt.reserved_disk_bytes) filter (where attempt.frees_capacity) as disk_bytes,
        sum(attempt.reserved_gpu_count) filter (where attempt.frees_capacity) as gpu_count,
        (select count(*) from cancel where cancel.node_id = attempt.node_id) as command_count
    from attempt
    group by attempt.node_id
),
locked as materialized (
    select node_id
    from nodes
    where node_id in (select node_id from freed)
    order by node_id
    for update
),
node as (
    update nodes
    set
        running_count = greatest(nodes.running_count - freed.attempt_count, 0),
        process_running_count
            = greatest(nodes.process_running_count - freed.process_count, 0),
        reserved_cpu_millis
            = greatest(nodes.reserved_cpu_millis - coalesce(freed.cpu_millis, 0), 0),
        reserved_memory_bytes
            = greatest(nodes.reserved_memory_bytes - coalesce(freed.memory_bytes, 0), 0),
        reserved_disk_bytes
            = greatest(nodes.reserved_disk_bytes - coalesce(freed.disk_bytes, 0), 0),
        reserved_gpu_count
            = greatest(nodes.reserved_gpu_count - coalesce(freed.gpu_count, 0), 0),
        last_command_sequence = nodes.last_command_sequence + freed.command_count
    from freed
    inner join locked on locked.node_id = freed.node_id
    where nodes.node_id = freed.node_id
    returning nodes.node_id, nodes.last_command_sequence - freed.command_count as sequence_before
),
ordered as (
    insert into node_commands (node_id, sequence, command_id, kind, attempt_id, payload)
    select
        cancel.node_id, node.sequence_before + cancel.place, cancel.command_id, 'CANCEL',
        cancel.attempt_id,
        json_build_object(
            'attempt_id', cancel.attempt_id,
            'lease_version', cancel.lease_version,
            'stop_reason', 'CANCEL'
        )::text
    from cancel
    inner join node on node.node_id = cancel.node_id
    returning node_id
)
select distinct node_id
from ordered;

-- name: make_due
-- purpose: has the engine look at locked executions
update executions
set next_due_at = tdp_now()
where execution_id = any($1::uuid[]) and completed_at is null;

-- name: order_stops
-- purpose: tells live attempts to stop, and says which had not been sent to their node yet
-- The executions are locked. Those not sent are only marked: the caller ends them. $1–$4 name the
-- attempts, $5 why, $6 are ids for the commands.
with wanted as materialized (
    select *
    from unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[], $5::text[], $6::uuid[])
        as given (execution_id, step_key, item_index, number, stop_reason, command_id)
),
target as materialized (
    select attempt.attempt_id, attempt.node_id, attempt.lease_version, wanted.stop_reason, wanted.command_id
    from attempts as attempt
    inner join wanted
        on wanted.execution_id = attempt.execution_id
        and wanted.step_key = attempt.step_key
        and wanted.item_index = attempt.item_index
        and wanted.number = attempt.number
    where attempt.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
        and attempt.pending_result is null
        and attempt.stop_reason is null
    order by attempt.attempt_id
    for update of attempt
),
voided as (
    update node_commands
    set status = 'VOIDED'
    where attempt_id in (select attempt_id from target)
        and kind = 'RUN'
        and status = 'PENDING'
    returning attempt_id
),
stopped as (
    update attempts
    set stop_reason = target.stop_reason
    from target
    where attempts.attempt_id = target.attempt_id
),
cancel as materialized (
    select
        target.*,
        row_number() over (partition by target.node_id order by target.attempt_id) as place
    from target
    where target.attempt_id not in (select attempt_id from voided)
),
locked as materialized (
    select node_id
    from nodes
    where node_id in (select node_id from cancel)
    order by node_id
    for update
),
node as (
    update nodes
    set last_command_sequence = nodes.last_command_sequence
        + (select count(*) from cancel where cancel.node_id = nodes.node_id)
    from locked
    where nodes.node_id = locked.node_id
    returning
        nodes.node_id,
        nodes.last_command_sequence
        - (select count(*) from cancel where cancel.node_id = nodes.node_id) as sequence_before
),
ordered as (
    insert into node_commands (node_id, sequence, command_id, kind, attempt_id, payload)
    select
        cancel.node_id, node.sequence_before + cancel.place, cancel.command_id, 'CANCEL',
        cancel.attempt_id,
        json_build_object(
            'attempt_id', cancel.attempt_id,
            'lease_version', cancel.lease_version,
            'stop_reason', cancel.stop_reason
        )::text
    from cancel
    inner join node on node.node_id = cancel.node_id
)
select
    target.attempt_id, target.node_id, target.stop_reason,
    target.attempt_id in (select attempt_id from voided) as is_voided
from target;

-- name: overdue_attempts
-- purpose: names attempts whose run time-out has passed and that were not told to stop yet
select attempt_id, execution_id, step_key, item_index, number
from attempts
where run_deadline_at <= (select tdp_now())
    and run_deadline_at is not null
    and stop_reason is null
    and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
order by run_deadline_at
limit $1;

-- name: lock_free_executions
-- purpose: locks those of some executions that nobody else is working on
select execution_id
from executions
where execution_id = any($1::uuid[])
order by execution_id
for update skip locked;

-- name: seconds_until_overdue
-- purpose: says when the next run time-out passes, null without one
select extract(epoch from min(run_deadline_at) - tdp_now())::float8 as due_in_s
from attempts
where run_deadline_at is not null
    and stop_reason is null
    and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING');

-- name: settle_artifacts
-- purpose: makes the artifacts of a settled result final: committed with it, or given up
update artifacts
set status = given.status
from unnest($1::uuid[], $2::text[]) as given (attempt_id, status)
where artifacts.attempt_id = given.attempt_id
    and artifacts.status = 'REPORTED';
