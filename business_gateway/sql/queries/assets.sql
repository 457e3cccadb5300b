-- name: insert_asset
-- purpose: stores an upload that is to come
insert into assets (asset_id, name, object_key, declared_size_bytes, declared_sha256)
values ($1, $2, $3, $4, $5)
returning *;

-- name: get_asset
-- purpose: reads one asset
select * from assets where asset_id = $1;

-- name: claim_verification
-- purpose: gives one request at a time the right to verify an upload
update assets
set verifying_until = tdp_now() + $2::double precision * interval '1 second'
where
    asset_id = $1
    and state = 'UPLOADING'
    and (verifying_until is null or verifying_until <= tdp_now())
returning *;

-- name: release_verification
-- purpose: gives that right back without a verdict
update assets set verifying_until = null where asset_id = $1 and state = 'UPLOADING';

-- name: decide_asset
-- purpose: records what an upload came to, once
update assets
set
    state = $2,
    size_bytes = $3,
    sha256 = $4,
    rejection_reason = $5,
    rejection_message = $6,
    verifying_until = null,
    decided_at = tdp_now()
where asset_id = $1 and state = 'UPLOADING'
returning *;

-- name: remove_asset
-- purpose: forgets an upload that was refused on its way in
delete from assets where asset_id = $1 and state = 'UPLOADING';

-- name: left_uploads
-- purpose: finds uploads that nobody completed in time and nobody is verifying
select *
from assets
where
    state = 'UPLOADING'
    and created_at < (select tdp_now()) - $1::double precision * interval '1 second'
    and (verifying_until is null or verifying_until <= (select tdp_now()))
order by created_at
limit $2;
