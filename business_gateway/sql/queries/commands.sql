-- name: command_facts
-- purpose: tells what a command needs to know of its order
select
    orders.order_id,
    orders.status as order_status,
    orders.task_id,
    submit.status as submit_status
from orders
left join command_outbox as submit
    on submit.order_id = orders.order_id and submit.kind = 'SUBMIT'
where orders.order_id = any($1::uuid[]);

-- name: close_unsubmitted
-- purpose: completes a cancel here, where the platform finally refused the order
update orders
set status = 'CANCELED',
    change_kind = 'CLOSED',
    change_event_id = null,
    version = version + 1,
    cancel_requested_at = coalesce(cancel_requested_at, tdp_now()),
    completed_at = tdp_now(),
    quiet_since = tdp_now(),
    updated_at = tdp_now()
where order_id = $1
    and task_id is null
    and status <> 'CANCELED'
    and not exists (
        select 1
        from command_outbox
        where order_id = $1 and kind = 'SUBMIT' and status <> 'DEAD'
    )
returning order_id;

-- name: note_refusals
-- purpose: lets orders whose command was finally refused need attention, as their row is marked
-- Only where the order still waits for that very command: the platform's own word is newer.
with refused as (
    select distinct on (order_id)
        order_id,
        kind,
        last_error,
        -- Not by a cast to json: a payload that cannot be read is refused here as well.
        coalesce(substring(payload from '"run": ?([0-9]{1,9})')::integer, 0) as run
    from command_outbox
    where outbox_id = any($1::uuid[])
    order by order_id, position desc
)
update orders
set status = 'NEEDS_ATTENTION',
    change_kind = refused.kind || '_REFUSED',
    change_event_id = null,
    version = version + 1,
    diagnosis = 'The platform refused '
        || case refused.kind
            when 'SUBMIT' then 'to take the order: '
            when 'CANCEL' then 'to cancel it: '
            else 'to run it again: '
        end
        || coalesce(refused.last_error, 'no reason given'),
    diagnosis_json = json_build_object(
        'command', refused.kind, 'error', coalesce(refused.last_error, '')
    )::text,
    completed_at = tdp_now(),
    quiet_since = tdp_now(),
    updated_at = tdp_now()
from refused
where orders.order_id = refused.order_id
    and case refused.kind
        when 'SUBMIT' then orders.task_id is null and orders.status in ('SUBMITTING', 'CANCELING')
        when 'CANCEL' then orders.status = 'CANCELING'
            and orders.platform_status <> 'CANCELING'
            and refused.run in (0, orders.run)
        else orders.status in ('SUBMITTING', 'CANCELING') and orders.run = refused.run
    end
returning orders.order_id;
