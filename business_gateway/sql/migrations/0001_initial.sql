-- migrate:up

-- The business gateway's own database: one owner for assets, orders, what is to be told to the
-- platform, what the platform told, and artifacts. JSON documents are text, so that numbers stay
-- exact; ids are UUIDv7. Locks are taken in one order everywhere: command_outbox, orders,
-- callback_inbox, artifacts.

-- The one clock of leases, claims and due times: what the database says, at the moment of asking
-- (not at the start of the transaction). Copy this into the first migration of each database.
--
-- The offset moves time in tests only. It is a setting of the database, so that every process on
-- it sees the same time:  alter database NAME set tdp.clock_offset = '90 seconds';  new
-- connections then use it. Unset, it costs nothing that matters and is zero.
--
-- In a where clause write  available_at <= (select tdp_now())  : evaluated once, it can use an
-- index, which a bare volatile call cannot.
create function tdp_now() returns timestamptz
    language sql volatile parallel safe
    return clock_timestamp()
        + coalesce(nullif(current_setting('tdp.clock_offset', true), ''), '0')::interval;

---------------------------------------------------------------------------------------------
-- Assets
---------------------------------------------------------------------------------------------

create table assets (
    asset_id uuid primary key,
    name text not null check (char_length(name) between 1 and 200),
    -- UPLOADING -> READY | REJECTED, both final.
    state text not null default 'UPLOADING' check (state in ('UPLOADING', 'READY', 'REJECTED')),
    object_key text not null unique,
    media_type text not null default 'application/zip',
    -- What the client announced; a streamed upload announces nothing.
    declared_size_bytes bigint check (declared_size_bytes > 0),
    declared_sha256 bytea check (octet_length(declared_sha256) = 32),
    -- What was found in the store. The hash is known where the bytes passed through us or had to
    -- be compared.
    size_bytes bigint check (size_bytes >= 0),
    sha256 bytea check (octet_length(sha256) = 32),
    rejection_reason text,
    rejection_message text,
    -- One verification at a time: a second one could take over other bytes after the verdict.
    verifying_until timestamptz,
    created_at timestamptz not null default tdp_now(),
    decided_at timestamptz,
    check ((state = 'UPLOADING') = (decided_at is null)),
    check ((state = 'REJECTED') = (rejection_reason is not null)),
    check (state <> 'READY' or size_bytes is not null)
);

-- Uploads that nobody completed are removed with their bytes.
create index assets_left on assets (created_at) where state = 'UPLOADING';

---------------------------------------------------------------------------------------------
-- Orders
---------------------------------------------------------------------------------------------

create table orders (
    order_id uuid primary key,
    name text not null check (char_length(name) between 1 and 200),
    processing_mode text not null
        check (processing_mode in ('ARCHIVE_CLEAN_ONLY', 'ARCHIVE_CLEAN_THEN_WATERMARK')),
    watermark_text text not null default '' check (char_length(watermark_text) <= 100),
    source_asset_id uuid not null references assets,
    status text not null default 'SUBMITTING'
        check (status in (
            'SUBMITTING', 'PROCESSING', 'COMPLETED', 'NEEDS_ATTENTION', 'CANCELING', 'CANCELED'
        )),
    -- The platform's ids, once known; whoever learns them later fills only what is null.
    task_id uuid,
    execution_id uuid,
    -- The highest run of which anything is known; 0 before the first.
    run integer not null default 0 check (run >= 0),
    -- Of that run: the highest sequence with all before it received, where after_sequence stands,
    -- and the highest projected. They differ while there is a gap.
    last_contiguous_sequence bigint not null default 0 check (last_contiguous_sequence >= 0),
    last_projected_sequence bigint not null default 0
        check (last_projected_sequence >= last_contiguous_sequence),
    -- The platform's own word for the run's state, for display beside the business status, and the
    -- sequence of the event that said it: an event may say nothing about it.
    platform_status text not null default '',
    status_sequence bigint not null default 0 check (status_sequence >= 0),
    progress_percent integer not null default 0 check (progress_percent between 0 and 100),
    -- Why it needs attention: a sentence for people, and the platform's failure as JSON.
    diagnosis text not null default '',
    diagnosis_json text,
    output_json text,
    -- Added to by 1 with each change that a client may see: ETag, and the id of live events.
    version bigint not null default 1 check (version >= 1),
    -- What the last change was, in UPPER_SNAKE; order_changes keeps it for each version.
    change_kind text not null default 'CREATED',
    -- The event behind that change, where one was.
    change_event_id uuid,
    -- When the client asked to cancel; the platform may still finish first.
    cancel_requested_at timestamptz,
    -- When results were published, a business act of its own.
    published_at timestamptz,
    -- The last sign of life: creation, an event, or a query that found nothing new.
    quiet_since timestamptz not null default tdp_now(),
    created_at timestamptz not null default tdp_now(),
    updated_at timestamptz not null default tdp_now(),
    -- Set while the status is final for the current run.
    completed_at timestamptz,
    check ((watermark_text = '') = (processing_mode = 'ARCHIVE_CLEAN_ONLY')),
    check ((status in ('COMPLETED', 'NEEDS_ATTENTION', 'CANCELED')) = (completed_at is not null))
);

-- The sweep over orders that are quiet for too long; finished ones are not in it, nor those that
-- wait to be submitted, of which the platform could not be asked.
create index orders_quiet on orders (quiet_since)
    where status in ('SUBMITTING', 'PROCESSING', 'CANCELING') and task_id is not null;

-- Pages are ordered by id, which is by time of creation; with the filter by status too.
create index orders_by_status on orders (status, order_id desc);

-- A callback without external_ref is resolved by execution.
create unique index orders_execution on orders (execution_id) where execution_id is not null;

-- Orders with a gap are compensated at once.
create index orders_gaps on orders (quiet_since)
    where last_projected_sequence > last_contiguous_sequence;

-- Every version of an order, as clients saw it: live streams resume from here.
create table order_changes (
    order_id uuid not null,
    version bigint not null,
    kind text not null,
    event_id uuid,
    status text not null,
    platform_status text not null,
    run integer not null,
    progress_percent integer not null,
    diagnosis text not null,
    occurred_at timestamptz not null,
    primary key (order_id, version)
);

-- A trigger, so that no writer of orders can raise a version and forget its change.
create function keep_order_change() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and new.version < old.version then
        raise exception 'order % would go back from version % to %',
            new.order_id, old.version, new.version using errcode = 'check_violation';
    end if;
    if tg_op = 'INSERT' or new.version > old.version then
        insert into order_changes (
            order_id, version, kind, event_id, status, platform_status, run, progress_percent,
            diagnosis, occurred_at
        )
        values (
            new.order_id, new.version, new.change_kind, new.change_event_id, new.status,
            new.platform_status, new.run, new.progress_percent, new.diagnosis, new.updated_at
        );
    end if;
    return null;
end
$$;

create trigger keep_order_change after insert or update on orders
    for each row execute function keep_order_change();

---------------------------------------------------------------------------------------------
-- What is to be told to the platform
---------------------------------------------------------------------------------------------

-- ordering_key is the order id, destination 'control-plane'. A SUBMIT is withdrawn (its row is
-- deleted, its order CANCELED) only while claim_id is null, under its row lock.
create table command_outbox (
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
    kind text not null check (kind in ('SUBMIT', 'CANCEL', 'RERUN')),
    order_id uuid not null,
    constraint command_outbox_claimed check (status <> 'PUBLISHING' or claim_id is not null),
    constraint command_outbox_published check ((status = 'PUBLISHED') = (published_at is not null))
) with (
    -- Rows change state a few times and then rest: vacuum by number, not by share of history.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.01
);

-- Claiming and "when is the next one due": history is not in it.
create index command_outbox_due on command_outbox (available_at, created_at)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

-- "Is an earlier row of this key still undelivered?"
create index command_outbox_ordering on command_outbox (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;

-- Releasing one destination.
create index command_outbox_held on command_outbox (destination, available_at)
    where held and status in ('PENDING', 'FAILED');

-- Dead letters: counted, listed, driven again.
create index command_outbox_dead on command_outbox (position)
    where status in ('DEAD', 'QUARANTINED');

-- Retention removes delivered rows, oldest first, in bounded batches.
create index command_outbox_published on command_outbox (published_at)
    where status = 'PUBLISHED';

-- The commands of one order, as evidence; at most one SUBMIT each.
create index command_outbox_order on command_outbox (order_id, position);
create unique index command_outbox_submit on command_outbox (order_id) where kind = 'SUBMIT';

---------------------------------------------------------------------------------------------
-- What the platform told
---------------------------------------------------------------------------------------------

create table callback_inbox (
    -- The event's own id, the same whether it was delivered or fetched.
    event_id uuid primary key,
    order_id uuid not null,
    task_id uuid not null,
    execution_id uuid not null,
    run integer not null check (run >= 1),
    sequence bigint not null check (sequence >= 1),
    type text not null check (type <> ''),
    platform_status text not null default '',
    progress_percent integer not null default 0,
    -- The event as received, so that the projection can be computed again.
    envelope text not null,
    source text not null check (source in ('CALLBACK', 'QUERY')),
    -- PROJECTED: the order moved; NO_CHANGE: it was current and changed nothing to see;
    -- HISTORY: late (an older run, or before the projected sequence), kept only.
    effect text not null check (effect in ('PROJECTED', 'NO_CHANGE', 'HISTORY')),
    -- The order's version after it.
    order_version bigint not null,
    -- How often it arrived; the first arrival counts 1.
    arrivals integer not null default 1,
    received_at timestamptz not null default tdp_now(),
    last_arrival_at timestamptz not null default tdp_now()
);

-- Contiguity of a run, and an order's history in order.
create index callback_inbox_order on callback_inbox (order_id, run, sequence);
create index callback_inbox_execution on callback_inbox (execution_id, sequence);

---------------------------------------------------------------------------------------------
-- Artifacts
---------------------------------------------------------------------------------------------

create table artifacts (
    artifact_id uuid primary key,
    order_id uuid not null,
    task_id uuid not null,
    execution_id uuid not null,
    step_key text not null,
    -- The for_each index, -1 without one.
    item_index integer not null default -1,
    attempt_id uuid not null,
    boot_id text not null,
    relative_path text not null check (relative_path <> ''),
    type text not null check (char_length(type) between 1 and 100),
    media_type text not null,
    size_bytes_max bigint not null check (size_bytes_max >= 1),
    object_key text not null unique,
    -- ALLOCATED -> VERIFIED (its part is) -> COMMITTED (all parts are: clients see it).
    state text not null default 'ALLOCATED'
        check (state in ('ALLOCATED', 'VERIFIED', 'COMMITTED')),
    size_bytes bigint check (size_bytes >= 0),
    sha256 bytea check (octet_length(sha256) = 32),
    created_at timestamptz not null default tdp_now(),
    committed_at timestamptz,
    -- One place, and so one reference and one key, however often it is asked for.
    unique (attempt_id, boot_id, relative_path),
    check ((state = 'ALLOCATED') = (sha256 is null)),
    check ((sha256 is null) = (size_bytes is null)),
    check ((state = 'COMMITTED') = (committed_at is not null))
);

-- One committed artifact for each path of a step instance.
create unique index artifacts_committed
    on artifacts (execution_id, step_key, item_index, relative_path) where state = 'COMMITTED';

-- Lists of an order's artifacts.
create index artifacts_order on artifacts (order_id, relative_path, artifact_id)
    where state = 'COMMITTED';

-- Places never committed are removed with their bytes.
create index artifacts_left on artifacts (created_at) where state <> 'COMMITTED';

-- The parts of an attempt's commit, so that a repeated part is answered and not verified again.
create table artifact_commits (
    attempt_id uuid not null,
    part integer not null check (part >= 1),
    part_count integer not null check (part_count >= part),
    -- SHA-256 over the part's files as sent.
    request_sha256 bytea not null check (octet_length(request_sha256) = 32),
    file_count integer not null check (file_count >= 0),
    committed_at timestamptz not null default tdp_now(),
    primary key (attempt_id, part)
);

---------------------------------------------------------------------------------------------
-- Idempotency of requests
---------------------------------------------------------------------------------------------

-- Written in the transaction of what it answers for, which holds an advisory lock on the key: a
-- row is always a finished request, and one in progress leaves nothing behind when it fails.
create table idempotency_records (
    principal text not null,
    operation text not null,
    key text not null check (key <> ''),
    request_sha256 bytea not null check (octet_length(request_sha256) = 32),
    order_id uuid not null,
    -- The order as it was answered the first time, as JSON, to be answered again.
    answer text not null,
    created_at timestamptz not null default tdp_now(),
    primary key (principal, operation, key)
);

create index idempotency_records_created on idempotency_records (created_at);

-- migrate:down

-- Nothing goes down: a database is restored from its backup, not unmade.
