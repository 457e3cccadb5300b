-- name: console_orders
-- purpose: reads the orders that a live stream tells of
select * from orders where order_id = any($1::uuid[]);

-- name: console_command_counts
-- purpose: shows how many commands stand where; delivered ones are history and not counted
select status, count(*) as command_count, min(created_at) as oldest_at
from command_outbox
where status <> 'PUBLISHED'
group by status;

-- name: console_dead_commands
-- purpose: lists what was given up, newest first
select
    outbox_id::text as command_id, order_id::text as order_id, kind, status, attempts, created_at,
    coalesce(last_error, '') as last_error
from command_outbox
where status in ('DEAD', 'QUARANTINED')
order by position desc
limit $1;

-- name: console_callbacks
-- purpose: lists the newest events received; ids of events are by time
select
    event_id::text as event_id, order_id::text as order_id, execution_id::text as execution_id, run, sequence, type, platform_status,
    progress_percent, source, effect, arrivals, received_at
from callback_inbox
where event_id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
order by event_id desc
limit $2;

-- name: console_changes
-- purpose: shows an order's versions beside the platform's facts
select version, kind, event_id::text as event_id, status, run, progress_percent, occurred_at
from order_changes
where order_id = $1
order by version desc
limit $2;
