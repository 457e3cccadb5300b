-- name: order_exists
-- purpose: tells whether a collection's order is there
select true as found from orders where order_id = $1;

-- name: source_of
-- purpose: reads a READY asset, and whether it is the order's source
select
    asset.object_key, asset.size_bytes, asset.sha256,
    exists(
        select 1
        from orders as placed
        where placed.order_id = $1 and placed.source_asset_id = asset.asset_id
    ) as is_source
from assets as asset
where asset.asset_id = $2 and asset.state = 'READY';

-- name: artifacts_by_id
-- purpose: reads artifacts
select * from artifacts where artifact_id = any ($1::uuid[]);

-- name: insert_places
-- purpose: reserves places, leaving those alone that were reserved before
insert into artifacts (
    artifact_id, order_id, task_id, execution_id, step_key, item_index, attempt_id, boot_id,
    relative_path, type, media_type, size_bytes_max, object_key
)
select
    place.artifact_id, $1::uuid, $2::uuid, $3::uuid, $4::text, $5::integer, $6::uuid, $7::text,
    place.relative_path, place.type, place.media_type, place.size_bytes_max, place.object_key
from unnest($8::uuid[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::text[])
    as place (artifact_id, relative_path, type, media_type, size_bytes_max, object_key)
order by place.relative_path
on conflict (attempt_id, boot_id, relative_path) do nothing;

-- name: places_of
-- purpose: reads the places of a process's attempt by path
select *
from artifacts
where attempt_id = $1 and boot_id = $2 and relative_path = any ($3::text[]);

-- name: find_commit
-- purpose: finds a part of an attempt's commit that was answered before
select request_sha256, part_count, file_count
from artifact_commits
where attempt_id = $1 and part = $2;

-- name: lock_attempt
-- purpose: lets the parts of one attempt's commit be counted one after the other
select pg_advisory_xact_lock(hashtextextended('artifacts of ' || $1::text, 0));

-- name: insert_commit
-- purpose: keeps that a part is verified
insert into artifact_commits (attempt_id, part, part_count, request_sha256, file_count)
values ($1, $2, $3, $4, $5);

-- name: verify_artifacts
-- purpose: keeps what was found of a part's files
update artifacts as verified
set state = 'VERIFIED', size_bytes = file.size_bytes, sha256 = file.sha256
from unnest($2::uuid[], $3::bigint[], $4::bytea[]) as file (artifact_id, size_bytes, sha256)
where
    verified.artifact_id = file.artifact_id
    and verified.attempt_id = $1
    and verified.state = 'ALLOCATED';

-- name: commit_progress
-- purpose: tells whether all parts are there, and whether they agree on how many there are
select count(*) as part_count, min(part_count) as least, max(part_count) as most
from artifact_commits
where attempt_id = $1;

-- name: commit_artifacts
-- purpose: makes all files of an attempt visible at once
update artifacts
set state = 'COMMITTED', committed_at = tdp_now()
where attempt_id = $1 and state = 'VERIFIED';

-- name: page_artifacts
-- purpose: reads a page of an order's results by path
select *
from artifacts
where
    order_id = $1
    and state = 'COMMITTED'
    and ($2::text is null or (relative_path, artifact_id) > ($2::text, $3::uuid))
order by relative_path, artifact_id
limit $4;

-- name: left_places
-- purpose: finds places that nobody committed in time
select *
from artifacts
where
    state <> 'COMMITTED'
    and created_at < (select tdp_now()) - $1::double precision * interval '1 second'
order by created_at
limit $2;

-- name: forget_places
-- purpose: removes places whose bytes are gone
delete from artifacts where artifact_id = any ($1::uuid[]) and state <> 'COMMITTED';
