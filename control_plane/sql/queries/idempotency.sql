-- name: remember_request
-- purpose: stores what a request was answered, unless its key is known; waits for a rival's commit
insert into idempotency_records (principal, operation, key, request_hash, answer)
values ($1, $2, $3, $4, $5)
on conflict do nothing
returning true as stored;

-- name: recall_request
-- purpose: reads what a key was answered, and for which request
select request_hash, answer
from idempotency_records
where principal = $1 and operation = $2 and key = $3;

-- name: lock_request
-- purpose: reads what a key was answered so far, and keeps it to this transaction
select request_hash, answer
from idempotency_records
where principal = $1 and operation = $2 and key = $3
for update;

-- name: keep_answer
-- purpose: replaces the answer of a request that is done in parts
update idempotency_records
set answer = $4
where principal = $1 and operation = $2 and key = $3;
