-- name: try_request_lock
-- purpose: lets one request with a key run at a time, and tells the others at once
select pg_try_advisory_xact_lock(hashtextextended($1, 0)) as locked;

-- name: find_record
-- purpose: finds what a finished request was answered; to be asked after taking the lock
select request_sha256, order_id::text, answer
from idempotency_records
where principal = $1 and operation = $2 and key = $3;

-- name: insert_record
-- purpose: keeps the answer in the transaction of what it answers for
insert into idempotency_records (principal, operation, key, request_sha256, order_id, answer)
values ($1, $2, $3, $4, $5, $6);
