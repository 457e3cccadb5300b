-- name: begin_request
-- purpose: lets one request with a key run at a time, and finds what a finished one was answered
-- The record is read by a snapshot from before the lock, so it may miss what the lock's last
-- holder just committed: then inserting the record fails on its key, and all is done again.
select
    pg_try_advisory_xact_lock(hashtextextended(concat_ws(E'\x1f', $1::text, $2::text, $3::text), 0))
        as locked,
    tdp_now() as now,
    record.request_sha256,
    record.order_id::text as order_id,
    record.answer
from (values (1)) as once
left join idempotency_records as record
    on record.principal = $1::text and record.operation = $2::text and record.key = $3::text;

-- name: insert_record
-- purpose: keeps the answer in the transaction of what it answers for
insert into idempotency_records (principal, operation, key, request_sha256, order_id, answer)
values ($1, $2, $3, $4, $5, $6);
