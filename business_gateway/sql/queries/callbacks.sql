-- name: find_orders_of_executions
-- purpose: tells whose execution it is, where an event does not say; current ones and earlier ones
select order_id, execution_id, true as is_current
from orders
where execution_id = any($1::uuid[])
union
select order_id, execution_id, false
from callback_inbox
where execution_id = any($1::uuid[]);

-- name: lock_projections
-- purpose: lets one transaction at a time move an order
select
    order_id, task_id, execution_id, run, last_contiguous_sequence, last_projected_sequence,
    status_sequence, status, platform_status, progress_percent, diagnosis, diagnosis_json,
    output_json, version
from orders
where order_id = any($1::uuid[])
order by order_id
for update;

-- name: known_events
-- purpose: says which events were stored before, and what was received beyond the gaps of orders
-- To be run after the locks are held: a statement sees what was committed before it began.
select event_id, null::uuid as order_id, null::bigint as sequence
from callback_inbox
where event_id = any($1::uuid[])
union all
select null::uuid, orders.order_id, beyond.sequence
from orders
join callback_inbox as beyond
    on beyond.execution_id = orders.execution_id
    and beyond.task_id = orders.task_id
    and beyond.order_id = orders.order_id
    and beyond.run = orders.run
    and beyond.sequence > orders.last_contiguous_sequence
where orders.order_id = any($2::uuid[])
    and orders.last_projected_sequence > orders.last_contiguous_sequence;

-- name: store_news
-- purpose: writes new events, repeats, and the orders that they moved, in one round trip
-- No order and no event occurs twice. $1–$18: orders; $19–$27: versions that were passed on the
-- way, which the update does not show; $28–$29: events known before; $30–$43: new events.
with moved as (
    update orders
    set
        task_id = given.task_id,
        execution_id = given.execution_id,
        run = given.run,
        last_contiguous_sequence = given.contiguous,
        last_projected_sequence = given.projected,
        status_sequence = given.status_sequence,
        status = given.status,
        platform_status = given.platform_status,
        progress_percent = given.progress_percent,
        diagnosis = given.diagnosis,
        diagnosis_json = given.diagnosis_json,
        output_json = given.output_json,
        version = given.version,
        change_kind = case
            when given.version > orders.version then given.change_kind else orders.change_kind
        end,
        change_event_id = case
            when given.version > orders.version
            then given.change_event_id
            else orders.change_event_id
        end,
        cancel_requested_at = case when not given.forgets_cancel then orders.cancel_requested_at end,
        completed_at = case
            when not given.is_final then null
            when given.run > orders.run then (select tdp_now())
            else coalesce(orders.completed_at, (select tdp_now()))
        end,
        updated_at = case
            when given.version > orders.version then (select tdp_now()) else orders.updated_at
        end,
        quiet_since = (select tdp_now())
    from unnest(
        $1::uuid[], $2::uuid[], $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::text[], $9::text[], $10::integer[], $11::text[], $12::text[],
        $13::text[], $14::bigint[], $15::text[], $16::uuid[], $17::boolean[], $18::boolean[]
    ) as given (
        order_id, task_id, execution_id, run, contiguous, projected, status_sequence, status,
        platform_status, progress_percent, diagnosis, diagnosis_json, output_json, version,
        change_kind, change_event_id, forgets_cancel, is_final
    )
    where orders.order_id = given.order_id
),
passed as (
    insert into order_changes (
        order_id, version, kind, event_id, status, platform_status, run, progress_percent,
        diagnosis, occurred_at
    )
    select *, (select tdp_now())
    from unnest(
        $19::uuid[], $20::bigint[], $21::text[], $22::uuid[], $23::text[], $24::text[],
        $25::integer[], $26::integer[], $27::text[]
    )
),
repeated as (
    update callback_inbox
    set arrivals = callback_inbox.arrivals + given.arrivals,
        last_arrival_at = (select tdp_now())
    from unnest($28::uuid[], $29::integer[]) as given (event_id, arrivals)
    where callback_inbox.event_id = given.event_id
)
insert into callback_inbox (
    event_id, order_id, task_id, execution_id, run, sequence, type, platform_status,
    progress_percent, envelope, source, effect, order_version, arrivals
)
select *
from unnest(
    $30::uuid[], $31::uuid[], $32::uuid[], $33::uuid[], $34::integer[], $35::bigint[],
    $36::text[], $37::text[], $38::integer[], $39::text[], $40::text[], $41::text[],
    $42::bigint[], $43::integer[]
) as given (
    event_id, order_id, task_id, execution_id, run, sequence, type, platform_status,
    progress_percent, envelope, source, effect, order_version, arrivals
)
order by event_id;

-- name: take_stale
-- purpose: takes orders that nothing was heard of for too long, once each among the replicas
-- By arrays, not joins: for a limit that it does not know the planner would read all orders.
with quiet as (
    (
        select order_id
        from orders
        where status in ('SUBMITTING', 'PROCESSING', 'CANCELING')
            and task_id is not null
            and quiet_since <= (select tdp_now()) - $1::double precision * interval '1 second'
        order by quiet_since
        limit $2::integer
    )
    union
    (
        select order_id
        from orders
        where last_projected_sequence > last_contiguous_sequence
            and quiet_since <= (select tdp_now()) - $1::double precision * interval '1 second'
        order by quiet_since
        limit $2::integer
    )
),
taken as (
    select orders.order_id
    from orders
    where orders.order_id = any(array(select order_id from quiet))
        and orders.execution_id is not null
        and orders.quiet_since <= (select tdp_now()) - $1::double precision * interval '1 second'
    order by orders.quiet_since
    limit $2::integer
    for update of orders skip locked
)
update orders
set quiet_since = tdp_now()
where orders.order_id = any(array(select order_id from taken))
returning
    orders.order_id, orders.task_id, orders.execution_id, orders.run,
    orders.last_contiguous_sequence;

-- name: take_gaps
-- purpose: takes orders that were seen to miss events, unless those have come meanwhile
with gaps as (
    select order_id
    from orders
    where order_id = any($1::uuid[])
        and execution_id is not null
        and last_projected_sequence > last_contiguous_sequence
    order by order_id
    for update skip locked
)
update orders
set quiet_since = tdp_now()
from gaps
where orders.order_id = gaps.order_id
returning
    orders.order_id, orders.task_id, orders.execution_id, orders.run,
    orders.last_contiguous_sequence;

-- name: next_stale
-- purpose: says how long the sweep may sleep
select extract(epoch from min(quiet_since) - tdp_now())::double precision
    + $1::double precision as due_in_s
from (
    (
        select quiet_since
        from orders
        where status in ('SUBMITTING', 'PROCESSING', 'CANCELING')
            and task_id is not null
        order by quiet_since
        limit 1
    )
    union all
    (
        select quiet_since
        from orders
        where last_projected_sequence > last_contiguous_sequence
        order by quiet_since
        limit 1
    )
) as first_ones;

-- name: close_gap
-- purpose: gives up events of a finished run that the platform no longer has
update orders
set last_contiguous_sequence = last_projected_sequence
where order_id = $1
    and run = $2
    and last_projected_sequence > last_contiguous_sequence
    and status in ('COMPLETED', 'NEEDS_ATTENTION', 'CANCELED');
