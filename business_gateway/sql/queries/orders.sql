-- name: insert_order
-- purpose: accepts an order with its SUBMIT and the answer to its request, if its asset is READY
with source as (
    select asset_id from assets where asset_id = $5 and state = 'READY' for key share
),

accepted as (
    insert into orders (
        order_id, name, processing_mode, watermark_text, source_asset_id,
        created_at, updated_at, quiet_since
    )
    select
        $1::uuid, $2::text, $3::text, $4::text, source.asset_id, $9::timestamptz, $9::timestamptz,
        $9::timestamptz
    from source
    returning order_id
),

command as (
    insert into command_outbox (outbox_id, ordering_key, destination, payload, kind, order_id)
    select $6::uuid, accepted.order_id::text, $7::text, $8::text, 'SUBMIT', accepted.order_id
    from accepted
),

record as (
    insert into idempotency_records (
        principal, operation, key, request_sha256, order_id, answer
    )
    select $10::text, $11::text, $12::text, $13::bytea, accepted.order_id, $14::text from accepted
)

select true as accepted from accepted;

-- name: asset_state
-- purpose: tells why an order could not have its asset
select state from assets where asset_id = $1;

-- name: lock_submit
-- purpose: decides against the pump whether an order was ever on its way
select claim_id is not null as ever_claimed, status
from command_outbox
where order_id = $1 and kind = 'SUBMIT'
for update;

-- name: lock_order
-- purpose: lets one change of an order happen at a time
select * from orders where order_id = $1 for update;

-- name: withdraw_submit
-- purpose: drops a SUBMIT that nobody ever claimed
delete from command_outbox where order_id = $1 and kind = 'SUBMIT' and claim_id is null;

-- name: insert_command
-- purpose: adds a command behind the earlier ones of its order, under the order's lock
insert into command_outbox (outbox_id, ordering_key, destination, payload, kind, order_id)
values ($1::uuid, $2::text, $3::text, $4::text, $5::text, $2::text::uuid);

-- name: cancel_order
-- purpose: writes what cancelling came to
update orders
set
    status = $2,
    change_kind = $3,
    change_event_id = null,
    version = version + 1,
    cancel_requested_at = coalesce(cancel_requested_at, tdp_now()),
    completed_at = case when $2 = 'CANCELED' then tdp_now() end,
    quiet_since = tdp_now(),
    updated_at = tdp_now()
where order_id = $1
returning *;

-- name: rerun_order
-- purpose: begins another run; the old run's ids and sequences stay until the new one's come
update orders
set
    status = 'SUBMITTING',
    change_kind = 'RERUN_REQUESTED',
    change_event_id = null,
    version = version + 1,
    platform_status = '',
    progress_percent = 0,
    diagnosis = '',
    diagnosis_json = null,
    output_json = null,
    cancel_requested_at = null,
    completed_at = null,
    quiet_since = tdp_now(),
    updated_at = tdp_now()
where order_id = $1
returning *;

-- name: get_order
-- purpose: reads one order
select * from orders where order_id = $1;

-- name: page_orders
-- purpose: reads a page of orders, newest first
select *
from orders
where $1::uuid is null or order_id < $1::uuid
order by order_id desc
limit $2;

-- name: page_orders_by_status
-- purpose: reads a page of the orders in one status, newest first
select *
from orders
where status = $3 and ($1::uuid is null or order_id < $1::uuid)
order by order_id desc
limit $2;

-- name: changes_after
-- purpose: reads the versions of an order that a live stream has not shown yet
select *
from order_changes
where order_id = $1 and version > $2
order by version
limit $3;

-- name: command_facts
-- purpose: shows as evidence what was to be told about an order and what came of it
select
    outbox_id::text as command_id, kind, status, attempts, created_at, published_at,
    coalesce(last_error, '') as last_error
from command_outbox
where order_id = $1
order by position;

-- name: inbox_facts
-- purpose: shows as evidence what the platform told about an order
select
    count(*) as event_count,
    count(*) filter (where source = 'QUERY') as queried_count,
    count(*) filter (where arrivals > 1) as repeated_count,
    count(*) filter (where effect = 'HISTORY') as history_count,
    (array_agg(event_id::text order by run desc, sequence desc))[1] as last_event_id,
    max(received_at) as last_received_at
from callback_inbox
where order_id = $1;
