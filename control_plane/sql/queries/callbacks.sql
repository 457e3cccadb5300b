-- name: callback_target
-- purpose: reads where an execution's events go and what they are signed with
select
    execution.application_id::text, task.callback_url, application.callback_secret,
    application.callback_disabled_at is not null as disabled
from executions as execution
inner join tasks as task using (task_id)
inner join applications as application
    on application.application_id = execution.application_id
where execution.execution_id = $1;

-- name: application_callback
-- purpose: reads what an application's callbacks are signed with, and whether they are off
select callback_secret, callback_disabled_at is not null as disabled
from applications
where application_id = $1;

-- name: disable_callbacks
-- purpose: switches an application's endpoint off until it is set again
update applications
set callback_disabled_at = coalesce(callback_disabled_at, tdp_now())
where application_id = $1;

-- name: list_callbacks
-- purpose: reads a page of deliveries, newest first; it is planned for its values
select
    delivery.outbox_id::text, coalesce(event.event_id::text, '') as event_id,
    coalesce(event.type, '') as event_type, delivery.application_id::text,
    coalesce(execution.task_id::text, '') as task_id, delivery.execution_id::text,
    delivery.sequence, delivery.position, delivery.status, delivery.attempts, delivery.held,
    delivery.redriven, coalesce(delivery.last_error, '') as last_error, delivery.created_at,
    delivery.available_at, delivery.published_at, coalesce(log.entries, '[]') as entries
from callback_deliveries as delivery
left join executions as execution on execution.execution_id = delivery.execution_id
left join execution_events as event
    on event.execution_id = delivery.execution_id and event.sequence = delivery.sequence
left join lateral (
    select
        json_agg(
            json_build_array(kind, left(detail, 500), extract(epoch from occurred_at)::float8)
            order by entry_id
        )::text as entries
    from (
        select entry.entry_id, entry.kind, entry.detail, entry.occurred_at
        from callback_log as entry
        where entry.outbox_id = delivery.outbox_id
        order by entry.entry_id desc
        limit $6
    ) as newest
) as log on true
where
    ($1::uuid is null or delivery.application_id = $1)
    and ($2::uuid is null or delivery.execution_id = $2)
    and delivery.status = any($3::text[])
    and ($4::bigint is null or delivery.position < $4)
order by delivery.position desc
limit $5;

-- name: fitting_callbacks
-- purpose: names the deliveries that a redelivery comes to next, oldest first; planned for its values
select delivery.outbox_id, delivery.position
from callback_deliveries as delivery
where
    ($1::uuid is null or delivery.application_id = $1)
    and ($13::uuid is null or delivery.execution_id = $13)
    and delivery.status = any($14::text[])
    and delivery.position > $15::bigint
    and (
        $13::uuid is not null
        or delivery.execution_id in (
            select execution.execution_id
            from fitting_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) as fitting
            inner join executions as execution on execution.task_id = fitting.task_id
        )
    )
order by delivery.position
limit $16;

-- name: count_callbacks
-- purpose: counts the deliveries that a redelivery would come to, up to a bound
select count(*) as found
from (
    select delivery.outbox_id, delivery.position
    from callback_deliveries as delivery
    where
        ($1::uuid is null or delivery.application_id = $1)
        and ($13::uuid is null or delivery.execution_id = $13)
        and delivery.status = any($14::text[])
        and delivery.position > $15::bigint
        and (
            $13::uuid is not null
            or delivery.execution_id in (
                select execution.execution_id
                from fitting_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) as fitting
                inner join executions as execution on execution.task_id = fitting.task_id
            )
        )
    order by delivery.position
    limit $16
) as fitting;

-- name: redeliver
-- purpose: makes finished deliveries due again, and notes how they had ended and who asked
with chosen as (
    select outbox_id, status, published_at
    from callback_deliveries
    where outbox_id = any($1::uuid[]) and status in ('DEAD', 'QUARANTINED', 'PUBLISHED')
    for update
),

noted as (
    insert into callback_log (outbox_id, kind, detail, occurred_at)
    select outbox_id, kind, detail, occurred_at
    from (
        select outbox_id, 'delivered' as kind, '' as detail, published_at as occurred_at
        from chosen
        where status = 'PUBLISHED'
        union all
        select outbox_id, 'redelivered', $2, tdp_now()
        from chosen
    ) as told
    order by kind
)

update callback_deliveries as again
set
    status = 'PENDING',
    attempts = 0,
    claims = 0,
    held = false,
    redriven = true,
    published_at = null,
    available_at = tdp_now()
from chosen
where again.outbox_id = chosen.outbox_id
returning again.outbox_id;

-- name: note_failures
-- purpose: keeps what endpoints answered to deliveries that failed
insert into callback_log (outbox_id, kind, detail)
select given.outbox_id, given.kind, given.detail
from unnest($1::uuid[], $2::text[], $3::text[]) as given (outbox_id, kind, detail);
