-- The columns that every outbox table in PostgreSQL has. Copy this into a migration with
-- {{table}} replaced by the table's name (a plain lower-case word), and add the columns of
-- your own after them: the pump hands those to the publisher untouched, as `row.extra`.
-- It needs tdp_now() of foundation/postgres/database_time.sql, created by an earlier line.
--
-- outbox_id      the message's identity everywhere: message id in NATS, event or command id.
-- ordering_key   null, or the aggregate (execution, order) whose rows leave in order: a row is
--                claimable only while no earlier undelivered row has its key.
-- position       the order within a key. Writers of one key insert under the aggregate's lock.
--                Never poll "position greater than the last": late commits would be skipped.
-- destination    where it goes, as the publisher understands it (a stream, an endpoint id).
-- payload        the message, as JSON text. It is never changed.
-- status         PENDING     never claimed (or driven again by an operator: see redriven)
--                PUBLISHING  claimed; the claim ends at claim_expires_at
--                FAILED      waits for its next attempt at available_at
--                PUBLISHED   delivered; final
--                DEAD        given up: refused for good, or too many attempts
--                QUARANTINED claimed too often without any answer: it may kill its publisher
-- attempts       counted failures since it was written or driven again.
-- claims         claims since the last answer; an answer of any kind puts it back to 0.
-- claim_id       the last claim, kept after the answer as evidence.
-- available_at   when the row is due: to be claimed (PENDING, FAILED) or to be taken over from
--                whoever claimed it (PUBLISHING: the claim's expiry).
-- claim_expires_at  the same moment, shown only while a claim is held.
-- held           waits, through no failure of its own, for its destination (unreachable or switched
--                off) or for a failed row before it in its key: releasing the destination makes it
--                due at once. Rows of one key have one destination.
-- redriven       an operator drove it again after DEAD or QUARANTINED: it blocks no other row.
create table {{table}} (
    outbox_id uuid primary key,
    ordering_key text,
    position bigint generated always as identity,
    destination text not null check (destination <> ''),
    payload text not null,
    status text not null default 'PENDING'
        check (status in ('PENDING', 'PUBLISHING', 'FAILED', 'PUBLISHED', 'DEAD', 'QUARANTINED')),
    attempts integer not null default 0 check (attempts >= 0),
    claims integer not null default 0 check (claims >= 0),
    claim_id uuid,
    available_at timestamptz not null default tdp_now(),
    claim_expires_at timestamptz
        generated always as (case when status = 'PUBLISHING' then available_at end) stored,
    created_at timestamptz not null default tdp_now(),
    published_at timestamptz,
    last_error text,
    held boolean not null default false,
    redriven boolean not null default false,
    constraint {{table}}_claimed check (status <> 'PUBLISHING' or claim_id is not null),
    constraint {{table}}_published check ((status = 'PUBLISHED') = (published_at is not null))
) with (
    -- Rows change state a few times and then rest: vacuum by number, not by share of history.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.01
);

-- Claiming and "when is the next one due": history is not in it.
create index {{table}}_due on {{table}} (available_at, created_at)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

-- "Is an earlier row of this key still undelivered?"
create index {{table}}_ordering on {{table}} (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;

-- Releasing one destination.
create index {{table}}_held on {{table}} (destination, available_at)
    where held and status in ('PENDING', 'FAILED');

-- Dead letters: counted, listed, driven again.
create index {{table}}_dead on {{table}} (position)
    where status in ('DEAD', 'QUARANTINED');

-- Retention removes delivered rows, oldest first, in bounded batches.
create index {{table}}_published on {{table}} (published_at)
    where status = 'PUBLISHED';
