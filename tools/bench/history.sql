-- What a platform that has run for long holds: tasks that are over, with all that hangs on them. Each
-- has two steps with an attempt each. For measurements only: nothing here is what a live one writes.

-- name: history_id
-- purpose: makes ids that begin with their time, as real ones do; for this session only
create function pg_temp.history_id(at timestamptz, seed text) returns uuid
    language sql immutable
    return (substr(replace(id_at(at)::text, '-', ''), 1, 12) || substr(md5(seed), 1, 20))::uuid;

-- name: fill_tasks
-- purpose: makes finished tasks, a second apart, the newest an hour ago
insert into tasks (
    task_id, application_id, name, external_ref, workflow_name, workflow_version, priority, input,
    callback_url, labels, current_execution_id, current_run, created_at
)
select
    pg_temp.history_id(made.at, 'task' || made.n), $1::uuid, 'history', 'history-' || made.n, 'two-steps', '1',
    0, '{}', 'https://example.org/hook', '{"kind": "history"}', pg_temp.history_id(made.at, 'execution' || made.n),
    1, made.at
from (
    select n, tdp_now() - interval '1 hour' - make_interval(secs => $2::integer - n) as at
    from generate_series(1, $2::integer) as n
) as made;

-- name: fill_executions
-- purpose: gives each of them its execution, one in twenty of them failed
insert into executions (
    execution_id, task_id, application_id, run, status, progress_percent, version, last_sequence,
    snapshot_digest, created_at, started_at, completed_at
)
select
    current_execution_id, task_id, application_id, 1,
    case when ordinal % 20 = 0 then 'FAILED' else 'SUCCEEDED' end,
    case when ordinal % 20 = 0 then 50 else 100 end,
    4, 3, 'history', created_at, created_at, created_at + interval '30 seconds'
from (select *, row_number() over () as ordinal from tasks where name = 'history') as task;

-- name: fill_events
-- purpose: gives each execution its events, all told
insert into execution_events (
    execution_id, sequence, event_id, type, status, progress_percent, envelope, occurred_at
)
select
    execution_id, sequence, gen_random_uuid(), 'execution.progress', status, 0, '{}', created_at
from executions, generate_series(1, 3) as sequence
where snapshot_digest = 'history';

-- name: fill_wake_ups
-- purpose: gives each event its delivered wake-up
insert into outbox_events (
    outbox_id, destination, payload, execution_id, status, claim_id, published_at, created_at
)
select
    gen_random_uuid(), 'jetstream', '{}', execution_id, 'PUBLISHED', event_id, occurred_at,
    occurred_at
from execution_events
where envelope = '{}';

-- name: fill_callbacks
-- purpose: gives each event its delivered callback
insert into callback_deliveries (
    outbox_id, ordering_key, destination, payload, execution_id, sequence, application_id, status,
    claim_id, published_at, created_at
)
select
    gen_random_uuid(), execution_id::text, $1::uuid::text, '{}', execution_id, sequence, $1::uuid,
    'PUBLISHED', event_id, occurred_at, occurred_at
from execution_events
where envelope = '{}';

-- name: fill_steps
-- purpose: gives each execution two steps
insert into steps (
    execution_id, step_key, position, status, attempt_number, progress_percent, capability,
    capability_version, input, output, ready_at, started_at, completed_at
)
select
    execution_id, 'step-' || position, position, 'SUCCEEDED', 1, 100, 'noop', '1', '{}', '{}',
    created_at, created_at, completed_at
from executions, generate_series(1, 2) as position
where snapshot_digest = 'history';

-- name: fill_requests
-- purpose: gives each step its request, which was served
insert into scheduling_requests (
    execution_id, step_key, item_index, attempt_number, application_id, priority, capability,
    capability_version, requirement, status, created_at
)
select
    execution_id, step_key, item_index, 1, $1::uuid, 0, 'noop', '1', '{}', 'DISPATCHED', ready_at
from steps
where output = '{}' and capability = 'noop';

-- name: fill_attempts
-- purpose: gives each step its attempt
insert into attempts (
    attempt_id, execution_id, step_key, item_index, number, task_id, application_id, node_id,
    lease_version, status, dispatched_at, accepted_at, started_at, completed_at
)
select
    pg_temp.history_id(step.ready_at, 'attempt' || step.execution_id || step.step_key), step.execution_id,
    step.step_key, step.item_index, 1, execution.task_id, execution.application_id, $1::uuid, 1,
    'SUCCEEDED', step.ready_at, step.ready_at, step.ready_at, step.completed_at
from steps as step
inner join executions as execution using (execution_id)
where execution.snapshot_digest = 'history';

-- name: fill_commands
-- purpose: gives each attempt its command, which was stored
insert into node_commands (
    node_id, sequence, command_id, kind, attempt_id, payload, status, send_count, created_at,
    sent_at, acked_at
)
select
    node_id, row_number() over (order by attempt_id), gen_random_uuid(), 'RUN', attempt_id, '{}',
    'ACKED', 1, dispatched_at, dispatched_at, dispatched_at
from attempts
where node_id = $1::uuid;

-- name: fill_inbox
-- purpose: gives each attempt its report
insert into attempt_inbox (
    event_id, node_id, attempt_id, lease_version, incarnation_id, kind, accepted, received_at
)
select gen_random_uuid(), node_id, attempt_id, 1, node_id, 'SUCCEEDED', true, completed_at
from attempts
where node_id = $1::uuid;

-- name: fill_timeline
-- purpose: gives each attempt its entry
insert into timeline (execution_id, step_key, attempt_id, type, actor, occurred_at)
select execution_id, step_key, attempt_id, 'attempt.dispatched', 'scheduler', dispatched_at
from attempts
where node_id = $1::uuid;

-- name: fill_artifacts
-- purpose: gives each attempt a committed artifact
insert into artifacts (
    attempt_id, boot_id, relative_path, execution_id, step_key, item_index, collection_ref,
    resource_ref, type, media_type, size_bytes_max, status, created_at
)
select
    attempt_id, node_id, 'a', execution_id, step_key, item_index, 'c', 'r-' || attempt_id, 't', 'm',
    1, 'COMMITTED', completed_at
from attempts
where node_id = $1::uuid;

-- name: fill_grants
-- purpose: gives each attempt a grant, which is over
insert into grants (
    grant_id, attempt_id, lease_version, idempotency_key, resource_ref, method, secret, expires_at
)
select gen_random_uuid(), attempt_id, 1, 'k', 'r-' || attempt_id, 'GET', '', completed_at
from attempts
where node_id = $1::uuid;

-- name: fill_commits
-- purpose: gives each attempt its settled commit
insert into artifact_commits (
    outbox_id, destination, payload, execution_id, application_id, status, claim_id, published_at
)
select
    attempt_id, application_id::text, '{}', execution_id, application_id, 'PUBLISHED', attempt_id,
    completed_at
from attempts
where node_id = $1::uuid;

-- name: fill_records
-- purpose: gives each task the record of its CreateTask
insert into idempotency_records (principal, operation, key, request_hash, answer, created_at)
select
    'application:' || application_id, 'CreateTask', task_id::text, '',
    json_build_object('task_id', task_id)::text, created_at
from tasks
where name = 'history';
