-- name: look_up_intake
-- purpose: reads, for a batch of CreateTask, the key's record, the application and the workflow
select
    record.request_hash as recorded_hash,
    record.answer as recorded_answer,
    application.application_id is not null as application_known,
    application.disabled_at is not null as application_disabled,
    coalesce(application.callback_url, '') as application_callback_url,
    workflow.name,
    workflow.version,
    workflow.digest,
    workflow.definition,
    workflow.published_at,
    workflow.deprecated_at
from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::text[])
    with ordinality as given (
        principal, operation, key, application_id, workflow_name, workflow_version, place
    )
left join idempotency_records as record
    on
        record.principal = given.principal
        and record.operation = given.operation
        and record.key = given.key
left join applications as application
    on application.application_id = given.application_id
left join lateral (
    select name, version, digest, definition, published_at, deprecated_at
    from workflows
    where
        name = given.workflow_name
        and case
            when given.workflow_version = '' then deprecated_at is null
            else version = given.workflow_version
        end
    order by published_at desc, version desc
    limit 1
) as workflow on true
order by given.place;

-- name: create_tasks
-- purpose: stores tasks with their first executions and records; answers the keys that were new
-- The caller appends the events of those that are answered, in the same transaction.
with given as (
    select *
    from unnest(
        $1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::uuid[], $7::uuid[],
        $8::uuid[], $9::text[], $10::text[], $11::text[], $12::text[], $13::integer[], $14::text[],
        $15::text[], $16::jsonb[], $17::text[], $18::text[], $19::text[], $20::float8[]
    ) as item (
        principal, operation, key, request_hash, answer, task_id, execution_id,
        application_id, name, external_ref, workflow_name, workflow_version, priority, input,
        callback_url, labels, traceparent, snapshot_digest, snapshot, timeout_s
    )
),
remembered as (
    insert into idempotency_records (principal, operation, key, request_hash, answer)
    select principal, operation, key, request_hash, answer
    from given
    order by principal, operation, key
    on conflict do nothing
    returning principal, operation, key
),
fresh as (
    select given.* from given inner join remembered using (principal, operation, key)
),
frozen as (
    insert into workflow_snapshots (digest, definition)
    select distinct snapshot_digest, snapshot from fresh where snapshot is not null
    on conflict (digest) do nothing
),
task as (
    insert into tasks (
        task_id, application_id, name, external_ref, workflow_name, workflow_version, priority,
        input, callback_url, labels, traceparent, current_execution_id, current_run
    )
    select
        task_id, application_id, name, external_ref, workflow_name, workflow_version, priority,
        input, callback_url, labels, traceparent, execution_id, 1
    from fresh
),
execution as (
    insert into executions (
        execution_id, task_id, application_id, run, status, snapshot_digest, deadline_at,
        next_due_at
    )
    select
        execution_id, task_id, application_id, 1, 'CREATED', snapshot_digest,
        tdp_now() + make_interval(secs => timeout_s),
        -- Soon after the wake-up should have come, so that a lost one is noticed by the sweep.
        tdp_now() + interval '2 seconds'
    from fresh
)
select execution_id::text from fresh;

-- name: queued_executions
-- purpose: counts what an application has waiting, up to a bound
select count(*)
from (
    select from executions
    where application_id = $1 and status in ('CREATED', 'QUEUED')
    limit $2
) as waiting;
