-- name: live_attempt
-- purpose: reads an attempt that is live on a node under a lease, with its provider
select
    attempt.application_id::text, attempt.task_id::text, task.external_ref,
    attempt.execution_id::text, attempt.step_key, attempt.item_index, step.input,
    execution.snapshot_digest, attempt.run_deadline_at, tdp_now() as now,
    application.resource_provider_url, application.resource_provider_secret
from attempts as attempt
inner join steps as step using (execution_id, step_key, item_index)
inner join executions as execution using (execution_id)
inner join tasks as task on task.task_id = attempt.task_id
inner join applications as application
    on application.application_id = attempt.application_id
where
    attempt.attempt_id = $1
    and attempt.node_id = $2
    and attempt.lease_version = $3
    and attempt.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
    and attempt.lease_expires_at > tdp_now();

-- name: committed_by
-- purpose: tells which step of an execution committed an artifact, here or in a run it takes over
select artifact.step_key
from artifacts as artifact
where artifact.execution_id in (
    select $1::uuid
    union
    select reused_from_execution_id
    from steps
    where execution_id = $1 and reused_from_execution_id is not null
)
    and artifact.resource_ref = $2
    and artifact.status = 'COMMITTED'
    and (
        artifact.execution_id = $1
        or exists (
            select 1
            from steps as step
            where step.execution_id = $1
                and step.step_key = artifact.step_key
                and step.item_index = artifact.item_index
                and step.reused_from_execution_id = artifact.execution_id
        )
    )
limit 1;

-- name: allocated_to
-- purpose: checks that a reference was allocated to an attempt
select true as found
from artifacts
where attempt_id = $1 and resource_ref = $2 and status in ('ALLOCATED', 'REPORTED')
limit 1;

-- name: grant_of_key
-- purpose: finds the grant that a key of an attempt was answered with, while it lasts
select
    grant_id::text, idempotency_key, resource_ref, method, scope_type, scope_ref, secret,
    size_bytes, sha256, expires_at
from grants
where attempt_id = $1 and idempotency_key = $2 and expires_at > tdp_now()
order by created_at desc
limit 1;

-- name: grant_of_id
-- purpose: reads one of an attempt's grants
select
    grant_id::text, idempotency_key, resource_ref, method, scope_type, scope_ref, secret,
    size_bytes, sha256, expires_at
from grants
where grant_id = $1 and attempt_id = $2;

-- name: hold_lease
-- purpose: checks the lease once more and keeps it from moving until the commit
select true as held
from attempts
where
    attempt_id = $1
    and node_id = $2
    and lease_version = $3
    and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
    and lease_expires_at > tdp_now()
for key share;

-- name: insert_grants
-- purpose: stores grants of one attempt
insert into grants (
    grant_id, attempt_id, lease_version, idempotency_key, resource_ref, method, scope_type,
    scope_ref, secret, size_bytes, sha256, expires_at
)
select
    given.grant_id, $1, $2, given.idempotency_key, given.resource_ref, given.method,
    given.scope_type, given.scope_ref, given.secret, given.size_bytes, given.sha256,
    given.expires_at
from unnest(
    $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[],
    $10::bigint[], $11::bytea[], $12::timestamptz[]
) as given (
    grant_id, idempotency_key, resource_ref, method, scope_type, scope_ref, secret, size_bytes,
    sha256, expires_at
);

-- name: insert_artifacts
-- purpose: notes the places that were allocated to an attempt; one that is known stays
insert into artifacts (
    attempt_id, boot_id, relative_path, execution_id, step_key, item_index, collection_ref,
    resource_ref, type, media_type, size_bytes_max
)
select
    $1, $2, given.relative_path, $3, $4, $5, $6, given.resource_ref, given.type,
    given.media_type, given.size_bytes_max
from unnest($7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[]) as given (
    relative_path, resource_ref, type, media_type, size_bytes_max
)
on conflict do nothing;

-- name: task_reference
-- purpose: reads the application's own reference of a task
select external_ref from tasks where task_id = $1;

-- name: reported_artifacts
-- purpose: reads what an attempt reported as uploaded
select relative_path, resource_ref, size_bytes, sha256, media_type
from artifacts
where attempt_id = $1 and status in ('REPORTED', 'COMMITTED')
order by relative_path;

-- name: resource_provider
-- purpose: reads where an application's provider is, and its secret
select resource_provider_url, resource_provider_secret
from applications
where application_id = $1;
