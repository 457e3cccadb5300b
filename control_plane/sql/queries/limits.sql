-- Limits by key. Keys are locked in their order, after executions and attempts and before nodes.
-- Whoever waits is woken with skip locked, so that no order of locks is broken by it.

-- name: lock_keys
-- purpose: locks keys, making those that are not there, and notes how many slots they have
-- No key occurs twice. What the transaction reads of the slots it reads in a later statement.
insert into limit_keys (limit_key, slot_count)
select given.limit_key, given.slot_count
from unnest($1::text[], $2::integer[]) as given (limit_key, slot_count)
order by given.limit_key
on conflict (limit_key) do update
set slot_count = excluded.slot_count, touched_at = tdp_now();

-- name: lock_known_keys
-- purpose: locks keys that are there
select limit_key
from limit_keys
where limit_key = any($1::text[])
order by limit_key
for update;

-- name: read_slots
-- purpose: reads the taken slots of locked keys, how many wait for each, and the time
with moment as materialized (
    select tdp_now() as now
)
select
    given.limit_key, moment.now,
    array(
        select slot.taken_at
        from limit_slots as slot
        where slot.limit_key = given.limit_key
            and (slot.expires_at is null or slot.expires_at > moment.now)
        order by slot.taken_at
    ) as taken_at,
    (
        select count(*)
        from scheduling_requests as request
        where request.waits_for = given.limit_key
            and request.status = 'PENDING'
            and request.available_at > moment.now
    ) + (
        select count(*)
        from executions as execution
        where execution.waits_for = given.limit_key
            and execution.status = 'CREATED'
            and execution.next_due_at > moment.now
    ) as waiting_count
from unnest($1::text[]) as given (limit_key)
cross join moment;

-- name: take_slots
-- purpose: takes slots of locked keys; a rate's come back after their seconds
insert into limit_slots (limit_key, holder_id, expires_at)
select
    given.limit_key, given.holder_id,
    case when given.per_s > 0 then tdp_now() + make_interval(secs => given.per_s) end
from unnest($1::text[], $2::uuid[], $3::float8[]) as given (limit_key, holder_id, per_s)
on conflict (limit_key, holder_id) do nothing;

-- name: keys_held
-- purpose: names the keys of which holders have slots until they are over
select distinct limit_key
from limit_slots
where holder_id = any($1::uuid[])
    and expires_at is null;

-- name: free_slots
-- purpose: frees the slots of holders that are over, under the locks of their keys
delete from limit_slots
where holder_id = any($1::uuid[])
    and expires_at is null;

-- name: wake_waiting
-- purpose: makes due, for each key, as many of those that wait for it as it has free slots
-- Answers the executions among them, and a null for the requests, if there are any.
with moment as materialized (
    select tdp_now() as now
),
room as materialized (
    select
        known.limit_key,
        known.slot_count - (
            select count(*)
            from limit_slots as slot
            where slot.limit_key = known.limit_key
                and (slot.expires_at is null or slot.expires_at > moment.now)
        ) as free_count
    from limit_keys as known
    cross join moment
    where known.limit_key = any($1::text[])
),
request as materialized (
    select picked.execution_id, picked.step_key, picked.item_index, picked.attempt_number
    from room
    cross join lateral (
        select waiting.execution_id, waiting.step_key, waiting.item_index, waiting.attempt_number
        from scheduling_requests as waiting
        where waiting.waits_for = room.limit_key
            and waiting.status = 'PENDING'
        order by waiting.service_rank
        limit greatest(room.free_count, 0)
        for update skip locked
    ) as picked
),
execution as materialized (
    select picked.execution_id
    from room
    cross join lateral (
        select waiting.execution_id
        from executions as waiting
        where waiting.waits_for = room.limit_key
            and waiting.status = 'CREATED'
        order by waiting.waits_rank
        limit greatest(room.free_count, 0)
        for update skip locked
    ) as picked
),
due_request as (
    update scheduling_requests
    set available_at = moment.now, waits_for = null
    from request, moment
    where scheduling_requests.execution_id = request.execution_id
        and scheduling_requests.step_key = request.step_key
        and scheduling_requests.item_index = request.item_index
        and scheduling_requests.attempt_number = request.attempt_number
),
due_execution as (
    update executions
    set next_due_at = moment.now, waits_for = null
    from execution, moment
    where executions.execution_id = execution.execution_id
    returning executions.execution_id
)
select execution_id::text
from due_execution
union all
select distinct null::text
from request;

-- name: keys_with_waiting
-- purpose: names keys that somebody waits for, in case that a wake-up of theirs was lost
select distinct waits_for as limit_key
from scheduling_requests
where status = 'PENDING'
    and waits_for is not null
union
select distinct waits_for
from executions
where status = 'CREATED'
    and waits_for is not null;

-- name: drop_expired_slots
-- purpose: forgets slots of rates whose time is over, a bounded number
delete from limit_slots
where (limit_key, holder_id) in (
    select limit_key, holder_id
    from limit_slots
    where expires_at <= (select tdp_now())
    limit $1
    for update skip locked
);

-- name: drop_idle_keys
-- purpose: forgets keys that nobody has used for an hour, holds or waits for, a bounded number
delete from limit_keys
where limit_key in (
    select known.limit_key
    from limit_keys as known
    where known.touched_at < (select tdp_now()) - interval '1 hour'
        and not exists (select 1 from limit_slots where limit_slots.limit_key = known.limit_key)
        and not exists (
            select 1
            from scheduling_requests as request
            where request.waits_for = known.limit_key
                and request.status = 'PENDING'
        )
        and not exists (
            select 1
            from executions as execution
            where execution.waits_for = known.limit_key
                and execution.status = 'CREATED'
        )
    limit $1
    for update skip locked
);

-- name: hold_executions
-- purpose: notes of locked executions that they wait for a key, why, and when to look again
update executions
set
    waits_for = given.waits_for,
    waits_rank = extract(epoch from executions.created_at)::float8 - 6.0 * given.priority,
    waits_because = given.waits_because,
    next_due_at = given.next_due_at,
    advance_error = null,
    advance_failures = 0
from unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::timestamptz[])
    as given (execution_id, waits_for, priority, waits_because, next_due_at)
where executions.execution_id = given.execution_id;
