-- name: known_events
-- purpose: says what became of events that were stored before
select event_id, accepted, reason
from attempt_inbox
where event_id = any($1::uuid[]);

-- name: store_events
-- purpose: stores events with their fate, and counts those that were stored before
-- No event occurs twice; duplicate_count is how often it was repeated within the batch. The row
-- returned is the stored one: a concurrent batch may have been first.
insert into attempt_inbox (
    event_id, node_id, attempt_id, lease_version, incarnation_id, kind, accepted, reason, payload,
    duplicate_count
)
select *
from unnest(
    $1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::uuid[], $6::text[], $7::boolean[],
    $8::text[], $9::text[], $10::integer[]
) as given (
    event_id, node_id, attempt_id, lease_version, incarnation_id, kind, accepted, reason, payload,
    duplicate_count
)
order by event_id
on conflict (event_id) do update
set duplicate_count = attempt_inbox.duplicate_count + excluded.duplicate_count + 1
returning event_id, accepted, reason, (xmax = 0) as is_new;

-- name: report_artifacts
-- purpose: notes which allocated artifacts were uploaded, and answers how many each attempt reported
-- A resumed attempt also reports what the node's process before wrote, so the place is found by its
-- reference; of several, the reporting process's own. Other places of the same path are given up.
-- $1–$7: one row an artifact, none twice; $8: the attempts to count, with those rows counted in.
with given as materialized (
    select *
    from unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::bytea[], $7::text[]
    ) as given (attempt_id, boot_id, relative_path, resource_ref, size_bytes, sha256, media_type)
),
written as (
    select distinct on (given.attempt_id, given.relative_path)
        given.*,
        artifacts.boot_id as writer_boot_id
    from given
    inner join artifacts
        on given.attempt_id = artifacts.attempt_id
        and given.relative_path = artifacts.relative_path
        and given.resource_ref = artifacts.resource_ref
    where artifacts.status in ('ALLOCATED', 'REPORTED')
    order by
        given.attempt_id, given.relative_path, given.boot_id desc,
        artifacts.boot_id = given.boot_id desc, artifacts.boot_id desc
),
reported as (
    update artifacts
    set
        status = 'REPORTED',
        size_bytes = written.size_bytes,
        sha256 = written.sha256,
        media_type = written.media_type
    from written
    where artifacts.attempt_id = written.attempt_id
        and artifacts.boot_id = written.writer_boot_id
        and artifacts.relative_path = written.relative_path
    returning artifacts.attempt_id, artifacts.boot_id, artifacts.relative_path
),
superseded as (
    update artifacts
    set status = 'ABANDONED'
    from reported
    where artifacts.attempt_id = reported.attempt_id
        and artifacts.relative_path = reported.relative_path
        and artifacts.boot_id <> reported.boot_id
        and artifacts.status in ('ALLOCATED', 'REPORTED')
)
select attempt_id, count(distinct relative_path)::integer as reported_count
from (
    select attempt_id, relative_path from reported
    union all
    select attempt_id, relative_path
    from artifacts
    where attempt_id = any($8::uuid[]) and status = 'REPORTED'
) as counted
group by attempt_id;
