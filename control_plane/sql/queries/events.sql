-- name: append_events
-- purpose: writes execution events with their wake-ups and, where there is an endpoint, their callbacks
-- The caller holds the lock of each execution and has raised last_sequence in the same transaction.
with event as (
    select *
    from unnest(
        $1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::integer[],
        $7::text[], $8::uuid[], $9::boolean[], $10::uuid[], $11::uuid[]
    ) as given (
        execution_id, event_id, sequence, type, status, progress_percent,
        envelope, application_id, with_callback, outbox_id, delivery_id
    )
),
stored as (
    insert into execution_events (
        execution_id, sequence, event_id, type, status, progress_percent, envelope
    )
    select execution_id, sequence, event_id, type, status, progress_percent, envelope
    from event
),
announced as (
    insert into outbox_events (outbox_id, destination, payload, execution_id)
    select
        outbox_id,
        'jetstream',
        json_build_object(
            'execution_id', execution_id, 'sequence', sequence, 'type', type
        )::text,
        execution_id
    from event
)
insert into callback_deliveries (
    outbox_id, ordering_key, destination, payload, execution_id, sequence, application_id
)
select
    delivery_id, execution_id::text, application_id::text, envelope, execution_id, sequence,
    application_id
from event
where with_callback
order by event.execution_id, event.sequence;
