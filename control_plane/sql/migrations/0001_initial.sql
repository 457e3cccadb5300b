-- migrate:up

-- The control plane's own database: one owner for tasks, executions, steps, attempts and what
-- was told to whom. JSON documents are text, so that numbers stay exact; ids are UUIDv7.
-- Rows on the path of every task carry no foreign keys: one transaction writes parent and child,
-- and a check costs a look-up per row. Whatever is written seldom has them.

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

-- The least UUIDv7 of a moment: what was made in a window is found by its primary key.
create function id_at(moment timestamptz) returns uuid
    language sql stable parallel safe
    return (
        lpad(to_hex(greatest(floor(extract(epoch from moment) * 1000), 0)::bigint), 12, '0')
        || repeat('0', 20)
    )::uuid;

---------------------------------------------------------------------------------------------
-- Applications, keys, idempotency
---------------------------------------------------------------------------------------------

create table applications (
    application_id uuid primary key,
    name text not null unique check (char_length(name) between 1 and 100),
    callback_url text not null default '',
    -- AEAD, bound to (applications, callback_secret, application_id, key version).
    callback_secret bytea,
    -- Set by a 410: its rows are held until the endpoint is set again.
    callback_disabled_at timestamptz,
    resource_provider_url text not null default '',
    resource_provider_secret bytea,
    disabled_at timestamptz,
    created_at timestamptz not null default tdp_now()
);

create table api_keys (
    api_key_id uuid primary key,
    -- Exactly one of the two: the principal is the application or the operator, never the key.
    application_id uuid references applications,
    operator_name text,
    key_sha256 bytea not null unique check (octet_length(key_sha256) = 32),
    scopes text[] not null check (cardinality(scopes) > 0),
    expires_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null default tdp_now(),
    check ((application_id is null) <> (operator_name is null))
);

create table idempotency_records (
    -- application:<id>, node:<id>, operator:<name> or join_token:<id>.
    principal text not null,
    operation text not null,
    key text not null,
    request_hash bytea not null,
    -- What the first call answered, enough to answer it again (ids, a version).
    answer text not null,
    created_at timestamptz not null default tdp_now(),
    primary key (principal, operation, key)
);
-- Conservation reads a window of it, and retention the oldest.
create index idempotency_records_created on idempotency_records (created_at);

---------------------------------------------------------------------------------------------
-- Workflows, tasks, executions
---------------------------------------------------------------------------------------------

create table workflows (
    name text not null,
    version text not null,
    digest text not null,
    definition text not null,
    published_at timestamptz not null default tdp_now(),
    deprecated_at timestamptz,
    primary key (name, version)
);
create index workflows_newest on workflows (name, published_at desc, version desc) where deprecated_at is null;

-- Frozen snapshots, stored once by their digest: most executions share their workflow's own.
create table workflow_snapshots (
    digest text primary key,
    definition text not null
);

create table tasks (
    task_id uuid primary key,
    application_id uuid not null,
    name text not null,
    external_ref text not null,
    workflow_name text not null,
    workflow_version text not null,
    priority integer not null check (priority between -100 and 100),
    input text not null,
    -- Empty: no callbacks.
    callback_url text not null,
    labels jsonb not null default '{}',
    traceparent text not null default '',
    current_execution_id uuid not null,
    current_run integer not null,
    created_at timestamptz not null default tdp_now()
);
create index tasks_newest on tasks (application_id, task_id desc);
create index tasks_external_ref on tasks (external_ref, task_id desc) where external_ref <> '';
create index tasks_workflow on tasks (workflow_name, task_id desc);
create index tasks_labels on tasks using gin (labels jsonb_path_ops) where labels <> '{}';

create table executions (
    execution_id uuid primary key,
    task_id uuid not null,
    application_id uuid not null,
    run integer not null check (run >= 1),
    status text not null check (status in ('CREATED', 'QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELING', 'CANCELED')),
    -- What a RUNNING execution is closing as; null while it is not closing.
    closing_as text check (closing_as in ('FAILED', 'TIMED_OUT')),
    progress_percent integer not null default 0 check (progress_percent between 0 and 100),
    version bigint not null default 1,
    last_sequence bigint not null default 1,
    paused boolean not null default false,
    -- Since when; null while not paused. What is left of a queue time waits from then on.
    paused_at timestamptz,
    snapshot_digest text not null,
    output text,
    failure text,
    -- The execution's own time-out; null without one.
    deadline_at timestamptz,
    -- When the engine wants to look again without being woken; null when only a wake-up matters.
    next_due_at timestamptz,
    -- An advance that failed: its error, how often, and no advance before next_due_at.
    advance_error text,
    advance_failures integer not null default 0,
    quarantined_at timestamptz,
    -- The last progress event, so that there is at most one a second.
    progress_event_at timestamptz,
    -- The key of a limit that a CREATED execution waits for, in which order, and why in a sentence.
    waits_for text,
    waits_rank double precision,
    waits_because text,
    created_at timestamptz not null default tdp_now(),
    started_at timestamptz,
    completed_at timestamptz,
    unique (task_id, run),
    check ((completed_at is not null) = (status in ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED'))),
    check ((status = 'SUCCEEDED') = (progress_percent = 100))
);
create index executions_due on executions (next_due_at) where next_due_at is not null and completed_at is null;
create index executions_queued on executions (application_id) where status in ('CREATED', 'QUEUED');
create index executions_live on executions (created_at) where completed_at is null;
-- What people look for among much that went well; one application's rows are told apart in the index.
create index executions_not_succeeded on executions (task_id desc, application_id, status)
    where status <> 'SUCCEEDED';
create index executions_limited on executions (waits_for, waits_rank) where waits_for is not null and status = 'CREATED';
create index executions_quarantined on executions (task_id) where completed_at is null and quarantined_at is not null;
create index executions_completed on executions (completed_at) where completed_at is not null;

create table execution_events (
    execution_id uuid not null,
    sequence bigint not null check (sequence >= 1),
    event_id uuid not null,
    type text not null,
    status text not null,
    progress_percent integer not null,
    -- The CloudEvents envelope, the very text that is delivered.
    envelope text not null,
    occurred_at timestamptz not null default tdp_now(),
    primary key (execution_id, sequence)
);

create table timeline (
    entry_id bigint generated always as identity,
    execution_id uuid not null,
    step_key text not null default '',
    item_index integer not null default -1,
    attempt_id uuid,
    type text not null,
    actor text not null,
    detail text not null default '{}',
    occurred_at timestamptz not null default tdp_now(),
    primary key (execution_id, entry_id)
);

-- Wake-ups on their way to JetStream.
create table outbox_events (
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
    execution_id uuid not null,
    constraint outbox_events_claimed check (status <> 'PUBLISHING' or claim_id is not null),
    constraint outbox_events_published check ((status = 'PUBLISHED') = (published_at is not null))
) with (
    -- Rows change state a few times and then rest: vacuum by number, not by share of history.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.01
);

-- Claiming and "when is the next one due": history is not in it.
create index outbox_events_due on outbox_events (available_at, created_at)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

-- "Is an earlier row of this key still undelivered?"
create index outbox_events_ordering on outbox_events (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;

-- Probing and releasing one destination.
create index outbox_events_held on outbox_events (destination, available_at)
    where held and status in ('PENDING', 'FAILED');

-- Dead letters: counted, listed, driven again.
create index outbox_events_dead on outbox_events (position)
    where status in ('DEAD', 'QUARANTINED');

-- Retention removes delivered rows, oldest first, in bounded batches.
create index outbox_events_published on outbox_events (published_at)
    where status = 'PUBLISHED';

create index outbox_events_execution on outbox_events (execution_id);

-- Callbacks on their way to the application.
create table callback_deliveries (
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
    execution_id uuid not null,
    sequence bigint not null check (sequence >= 1),
    application_id uuid not null,
    constraint callback_deliveries_claimed check (status <> 'PUBLISHING' or claim_id is not null),
    constraint callback_deliveries_published check ((status = 'PUBLISHED') = (published_at is not null))
) with (
    -- Rows change state a few times and then rest: vacuum by number, not by share of history.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.01
);

-- Claiming and "when is the next one due": history is not in it.
create index callback_deliveries_due on callback_deliveries (available_at, created_at)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

-- "Is an earlier row of this key still undelivered?"
create index callback_deliveries_ordering on callback_deliveries (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;

-- Probing and releasing one destination.
create index callback_deliveries_held on callback_deliveries (destination, available_at)
    where held and status in ('PENDING', 'FAILED');

-- Dead letters: counted, listed, driven again.
create index callback_deliveries_dead on callback_deliveries (position)
    where status in ('DEAD', 'QUARANTINED');

-- Retention removes delivered rows, oldest first, in bounded batches.
create index callback_deliveries_published on callback_deliveries (published_at)
    where status = 'PUBLISHED';

create index callback_deliveries_execution on callback_deliveries (execution_id, sequence);
create index callback_deliveries_application_dead on callback_deliveries (application_id, position)
    where status in ('DEAD', 'QUARANTINED');

-- What came of deliveries that did not succeed at once: each counted failure, and what operators did.
-- One that succeeded at once is told by its row alone.
create table callback_log (
    entry_id bigint generated always as identity primary key,
    outbox_id uuid not null references callback_deliveries on delete cascade,
    kind text not null check (kind in ('failed', 'dead', 'delivered', 'redelivered')),
    -- What the endpoint answered, or who had it delivered again.
    detail text not null default '',
    occurred_at timestamptz not null default tdp_now()
);
create index callback_log_delivery on callback_log (outbox_id, entry_id);

---------------------------------------------------------------------------------------------
-- Steps, scheduling, attempts
---------------------------------------------------------------------------------------------

-- item_index is -1 for a step without for_each: a step instance is (execution, key, index).
create table steps (
    execution_id uuid not null,
    step_key text not null,
    item_index integer not null default -1,
    -- Place in the definition.
    position integer not null,
    status text not null check (status in ('PENDING', 'READY', 'RUNNING', 'WAITING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'SKIPPED')),
    -- The newest attempt's number, which is also the newest lease version; 0 before the first.
    attempt_number integer not null default 0,
    -- Failures that count against the retry policy, and losses that count against their own budget.
    failure_count integer not null default 0,
    loss_count integer not null default 0,
    progress_percent integer not null default 0 check (progress_percent between 0 and 100),
    capability text not null default '',
    capability_version text not null default '',
    input text,
    output text,
    failure text,
    -- A retry waits until then.
    not_before timestamptz,
    -- The queue time-out of a READY step, or the time-out of a WAITING one.
    deadline_at timestamptz,
    ready_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    -- The run whose work this is, where a rerun took it over: its artifacts count as committed here.
    reused_from_execution_id uuid,
    primary key (execution_id, step_key, item_index)
);

create table scheduling_requests (
    execution_id uuid not null,
    step_key text not null,
    item_index integer not null,
    -- The attempt that is asked for.
    attempt_number integer not null,
    application_id uuid not null,
    priority integer not null,
    capability text not null,
    capability_version text not null,
    -- Affinity and minimum resources, JSON.
    requirement text not null,
    status text not null default 'PENDING' check (status in ('PENDING', 'CLAIMED', 'DISPATCHED', 'VOIDED')),
    -- Not before (a retry's back-off), and for CLAIMED rows when the claim ends.
    available_at timestamptz not null default tdp_now(),
    claim_id uuid,
    -- Why no node was chosen, sentences as JSON; null before the first look.
    reasons text,
    never_satisfiable boolean not null default false,
    -- The slots that a dispatch takes: [key, label, count, seconds] each, JSON; null for none.
    limits text,
    -- The key of the limit that a PENDING request waits for; it says so in its reasons.
    waits_for text,
    created_at timestamptz not null default tdp_now(),
    -- Order of service, smaller first: priority with aging, one point for every 6 s of waiting.
    service_rank double precision generated always as (
        extract(epoch from created_at at time zone 'UTC')::float8 - 6.0 * priority
    ) stored,
    primary key (execution_id, step_key, item_index, attempt_number)
);
create index scheduling_requests_due on scheduling_requests (available_at) where status in ('PENDING', 'CLAIMED');
-- What waits for a node, by what it asks for and for whom.
create index scheduling_requests_parked on scheduling_requests (capability, capability_version, application_id, service_rank)
    where status = 'PENDING' and reasons is not null and waits_for is null;
-- What waits for a slot of a key, in order of service.
create index scheduling_requests_limited on scheduling_requests (waits_for, service_rank)
    where status = 'PENDING' and waits_for is not null;
-- What no known node could ever do: few, counted and shown.
create index scheduling_requests_never on scheduling_requests (created_at)
    where status = 'PENDING' and never_satisfiable;

-- Limits by key. Who takes or frees slots holds the row lock of the key.
create table limit_keys (
    limit_key text primary key,
    -- As the newest user of the key says.
    slot_count integer not null check (slot_count >= 1),
    touched_at timestamptz not null default tdp_now()
);

create table limit_slots (
    limit_key text not null,
    -- An attempt's or an execution's id.
    holder_id uuid not null,
    taken_at timestamptz not null default tdp_now(),
    -- When a rate's slot comes back; null for one that is held until its holder is over.
    expires_at timestamptz,
    primary key (limit_key, holder_id)
);
create index limit_slots_holder on limit_slots (holder_id) where expires_at is null;
create index limit_slots_expiry on limit_slots (expires_at) where expires_at is not null;

create table attempts (
    attempt_id uuid primary key,
    execution_id uuid not null,
    step_key text not null,
    item_index integer not null,
    number integer not null check (number >= 1),
    task_id uuid not null,
    application_id uuid not null,
    node_id uuid not null,
    lease_version bigint not null check (lease_version >= 1),
    -- The only authority on the lease; null once terminal or once its result is pending.
    lease_expires_at timestamptz,
    status text not null check (status in ('DISPATCHED', 'ACCEPTED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED', 'TIMED_OUT', 'LOST')),
    stop_reason text check (stop_reason in ('CANCEL', 'TIMEOUT', 'DRAIN')),
    progress_percent integer not null default 0 check (progress_percent between 0 and 100),
    -- When the run time-out passes, counted from dispatch; null without one.
    run_deadline_at timestamptz,
    -- A success whose artifacts are being committed: output and list are kept here until they are.
    pending_result text,
    failure text,
    usage text,
    -- The end of what the work printed, at most 8 KiB; null where it did not fail.
    log_tail text,
    -- What it holds of its node.
    reserved_cpu_millis bigint not null default 0,
    reserved_memory_bytes bigint not null default 0,
    reserved_disk_bytes bigint not null default 0,
    reserved_gpu_count integer not null default 0,
    takes_process_slot boolean not null default false,
    -- Whether it holds slots of limits.
    holds_slots boolean not null default false,
    dispatched_at timestamptz not null default tdp_now(),
    accepted_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    unique (execution_id, step_key, item_index, number)
);
create unique index attempts_one_success on attempts (execution_id, step_key, item_index) where status = 'SUCCEEDED';
create index attempts_lease on attempts (lease_expires_at) where lease_expires_at is not null;
create index attempts_node on attempts (node_id) where status in ('DISPATCHED', 'ACCEPTED', 'RUNNING');
create index attempts_run_deadline on attempts (run_deadline_at)
    where run_deadline_at is not null and stop_reason is null and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING');

---------------------------------------------------------------------------------------------
-- Nodes, commands, inbox
---------------------------------------------------------------------------------------------

create table join_tokens (
    join_token_id uuid primary key,
    token_sha256 bytea not null unique check (octet_length(token_sha256) = 32),
    node_group text not null default '',
    use_count integer not null default 0,
    -- 0: any number.
    use_count_max integer not null default 0,
    expires_at timestamptz not null,
    revoked_at timestamptz,
    created_at timestamptz not null default tdp_now()
);

create table nodes (
    node_id uuid primary key,
    name text not null unique check (char_length(name) between 1 and 100),
    credential_sha256 bytea not null unique check (octet_length(credential_sha256) = 32),
    node_group text not null default '',
    management text not null default 'ACTIVE' check (management in ('ACTIVE', 'CORDONED', 'DRAINING')),
    -- What the node's session shows: SILENT without one, or when its heartbeats stopped.
    runtime text not null default 'SILENT' check (runtime in ('READY', 'NOT_READY', 'SILENT')),
    not_ready_reason text not null default '',
    -- Raised by each session; messages of an older one are refused.
    generation bigint not null default 0,
    boot_id uuid,
    incarnation_id uuid,
    -- The replica that holds the session; the node is live while that replica's row is fresh.
    replica_id uuid,
    agent_version text not null default '',
    labels jsonb not null default '{}',
    weight integer not null default 100,
    slot_count integer not null default 0,
    running_count integer not null default 0 check (running_count >= 0),
    -- Of the slots those for child processes, 0 where the node tells no kinds apart.
    process_slot_count integer not null default 0,
    process_running_count integer not null default 0 check (process_running_count >= 0),
    -- What the whole machine uses and has left, as last heard; 0 where it was not told.
    cpu_used_millis bigint not null default 0,
    memory_available_bytes bigint not null default 0,
    cpu_millis bigint not null default 0,
    memory_bytes bigint not null default 0,
    disk_bytes bigint not null default 0,
    gpu_count integer not null default 0,
    reserved_cpu_millis bigint not null default 0,
    reserved_memory_bytes bigint not null default 0,
    reserved_disk_bytes bigint not null default 0,
    reserved_gpu_count integer not null default 0,
    -- Sequence of the newest command, and up to which the node has stored them.
    last_command_sequence bigint not null default 0,
    acked_command_sequence bigint not null default 0,
    -- Who said last what the node may do, and why; empty before anybody did.
    managed_by text not null default '',
    management_reason text not null default '',
    -- When a drain ends what still runs; null without a drain, or where it waits for their ends.
    drain_deadline_at timestamptz,
    last_seen_at timestamptz,
    enrolled_at timestamptz not null default tdp_now()
);

create table capability_schemas (
    capability text not null,
    version text not null,
    input_schema text not null,
    output_schema text not null,
    first_node_id uuid not null,
    created_at timestamptz not null default tdp_now(),
    primary key (capability, version)
);

create table node_capabilities (
    node_id uuid not null references nodes on delete cascade,
    capability text not null,
    version text not null,
    -- Why the node is not scheduled for it; empty where it is.
    refusal text not null default '',
    -- Whether it runs in the agent itself, and takes no process slot.
    inline boolean not null default false,
    primary key (node_id, capability, version)
);

create table node_commands (
    node_id uuid not null,
    sequence bigint not null,
    command_id uuid not null unique,
    kind text not null check (kind in ('RUN', 'CANCEL', 'EXTEND', 'DRAIN', 'UNDRAIN')),
    -- Null for DRAIN and UNDRAIN.
    attempt_id uuid,
    -- What does not change between sendings, JSON; lease time and heartbeat number are added when sent.
    payload text not null,
    status text not null default 'PENDING' check (status in ('PENDING', 'SENT', 'ACKED', 'VOIDED')),
    -- How often it was sent: twice without an answer and a dead process make it suspect.
    send_count integer not null default 0,
    created_at timestamptz not null default tdp_now(),
    sent_at timestamptz,
    acked_at timestamptz,
    primary key (node_id, sequence)
);
create index node_commands_open on node_commands (node_id, sequence) where status in ('PENDING', 'SENT');
create index node_commands_attempt on node_commands (attempt_id) where attempt_id is not null;

create table attempt_inbox (
    event_id uuid primary key,
    node_id uuid not null,
    attempt_id uuid not null,
    lease_version bigint not null,
    incarnation_id uuid not null,
    kind text not null check (kind in ('ARTIFACTS', 'SUCCEEDED', 'FAILED', 'STOPPED')),
    accepted boolean not null,
    -- Why it had no effect, UPPER_SNAKE; empty where accepted.
    reason text not null default '',
    -- What a refused event said, kept for diagnosis, JSON; null for accepted ones, whose facts are in their tables.
    payload text,
    duplicate_count integer not null default 0,
    received_at timestamptz not null default tdp_now()
);
create index attempt_inbox_attempt on attempt_inbox (attempt_id);

create table replicas (
    replica_id uuid primary key,
    version text not null,
    started_at timestamptz not null default tdp_now(),
    stamped_at timestamptz not null default tdp_now()
);

-- One row: proves that somebody was renewing leases, and holds expiry back after nobody was.
create table lease_guard (
    id integer primary key default 1 check (id = 1),
    stamped_at timestamptz not null default tdp_now(),
    hold_until timestamptz not null default tdp_now()
);
insert into lease_guard default values;

-- Until when no lease may end, judged anew: the rule of judge_guard in core/nodes/leases/guard.py.
create function judged_hold_until(
    stamped_at timestamptz, hold_until timestamptz, judged_at timestamptz, lease_ttl interval
) returns timestamptz
    language sql stable parallel safe
    return case
        when judged_at - stamped_at > lease_ttl / 2 or stamped_at - judged_at > lease_ttl / 12
            then judged_at + lease_ttl
        else least(hold_until, judged_at + lease_ttl)
    end;

-- How old the news of a node is in seconds, as scheduling counts it; null where there never was any.
-- A live node's is 0: its replica, which is fresh, would have written SILENT. The rules are those of
-- node_is_live in core/nodes/leases/liveness.py; both times to live are in seconds.
create function node_news_age_s(
    runtime text, last_seen_at timestamptz, stamped_at timestamptz, judged_at timestamptz,
    scheduling_ttl_s float8, lease_ttl_s float8
) returns float8
    language sql immutable parallel safe
    return case
        when last_seen_at is null then null
        when runtime <> 'SILENT'
            and extract(epoch from judged_at - stamped_at)
                between -scheduling_ttl_s / 12 and scheduling_ttl_s
            and extract(epoch from judged_at - last_seen_at) between -lease_ttl_s / 12 and lease_ttl_s
            then 0.0
        else greatest(
            extract(epoch from judged_at - stamped_at),
            extract(epoch from judged_at - last_seen_at),
            scheduling_ttl_s + 1
        )
    end;

-- What each node offers, as JSON: [capability, version, why it is not scheduled for it, inline].
create view offered_capabilities as
select
    node_id,
    json_agg(json_build_array(capability, version, refusal, inline) order by capability, version)::text
        as capabilities
from node_capabilities
group by node_id;

---------------------------------------------------------------------------------------------
-- Grants and artifacts
---------------------------------------------------------------------------------------------

create table grants (
    grant_id uuid primary key,
    attempt_id uuid not null,
    lease_version bigint not null,
    -- The node's key of the request: the same one gets the same grant while it lasts.
    idempotency_key text not null,
    resource_ref text not null,
    method text not null check (method in ('GET', 'PUT')),
    scope_type text not null default '',
    scope_ref text not null default '',
    -- URL and headers, AEAD bound to (grants, secret, application, grant_id, key version).
    secret bytea not null,
    size_bytes bigint not null default 0,
    sha256 bytea,
    expires_at timestamptz not null,
    created_at timestamptz not null default tdp_now()
);
create index grants_attempt on grants (attempt_id, idempotency_key);

create table artifacts (
    attempt_id uuid not null,
    boot_id uuid not null,
    relative_path text not null,
    execution_id uuid not null,
    step_key text not null,
    item_index integer not null,
    collection_ref text not null,
    resource_ref text not null,
    type text not null,
    media_type text not null,
    size_bytes_max bigint not null check (size_bytes_max >= 1),
    status text not null default 'ALLOCATED' check (status in ('ALLOCATED', 'REPORTED', 'COMMITTED', 'ABANDONED')),
    size_bytes bigint,
    sha256 bytea,
    created_at timestamptz not null default tdp_now(),
    primary key (attempt_id, boot_id, relative_path)
);
create unique index artifacts_one_committed on artifacts (execution_id, step_key, item_index, relative_path) where status = 'COMMITTED';
create index artifacts_resource on artifacts (execution_id, resource_ref);
-- Places that were never committed are removed after a day.
create index artifacts_left on artifacts (created_at) where status <> 'COMMITTED';

-- Durable CommitArtifacts, one a successful attempt: outbox_id is the attempt's id.
create table artifact_commits (
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
    execution_id uuid not null,
    application_id uuid not null,
    constraint artifact_commits_claimed check (status <> 'PUBLISHING' or claim_id is not null),
    constraint artifact_commits_published check ((status = 'PUBLISHED') = (published_at is not null))
) with (
    -- Rows change state a few times and then rest: vacuum by number, not by share of history.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.01
);

-- Claiming and "when is the next one due": history is not in it.
create index artifact_commits_due on artifact_commits (available_at, created_at)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

-- "Is an earlier row of this key still undelivered?"
create index artifact_commits_ordering on artifact_commits (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;

-- Probing and releasing one destination.
create index artifact_commits_held on artifact_commits (destination, available_at)
    where held and status in ('PENDING', 'FAILED');

-- Dead letters: counted, listed, driven again.
create index artifact_commits_dead on artifact_commits (position)
    where status in ('DEAD', 'QUARANTINED');

-- Retention removes delivered rows, oldest first, in bounded batches.
create index artifact_commits_published on artifact_commits (published_at)
    where status = 'PUBLISHED';

---------------------------------------------------------------------------------------------
-- Schedules
---------------------------------------------------------------------------------------------

create table schedules (
    schedule_id uuid primary key,
    application_id uuid not null references applications,
    name text not null check (char_length(name) between 1 and 100),
    cron text not null,
    time_zone text not null,
    overlap text not null check (overlap in ('ALLOW', 'SKIP', 'BUFFER_ONE', 'CANCEL_OTHER')),
    catch_up interval not null check (catch_up > interval '0'),
    -- What each run creates, JSON.
    task text not null,
    version bigint not null default 1,
    paused boolean not null default false,
    pause_reason text not null default '',
    paused_by text not null default '',
    -- The next due time; null while paused, once deleted, or if it is never due again.
    next_time timestamptz,
    created_at timestamptz not null default tdp_now(),
    updated_at timestamptz not null default tdp_now(),
    -- Deleted ones stay, so that replays are answered and their runs are settled.
    deleted_at timestamptz
);
create unique index schedules_name on schedules (application_id, name) where deleted_at is null;
create index schedules_newest on schedules (application_id, schedule_id desc) where deleted_at is null;
create index schedules_due on schedules (next_time) where next_time is not null;

-- One due time or one trigger, and what became of it.
create table schedule_runs (
    run_id uuid primary key,
    schedule_id uuid not null references schedules,
    due_at timestamptz not null,
    triggered boolean not null,
    status text not null check (status in ('PENDING', 'WAITING', 'STARTED', 'SKIPPED', 'MISSED', 'FAILED')),
    reason text not null default '',
    -- What it creates, as the schedule said when it became due: a repetition is the same request.
    task text not null,
    task_id uuid,
    -- Whether the task was not over when it was last looked at.
    live boolean not null default false,
    failure_count integer not null default 0,
    -- When to look at it; for a claimed one when the claim ends; null once it is settled.
    available_at timestamptz,
    -- Set from the first try to create the task on: it may exist although nobody noted it.
    claim_id uuid,
    created_at timestamptz not null default tdp_now(),
    settled_at timestamptz,
    check ((available_at is null) = (status not in ('PENDING', 'WAITING'))),
    check ((settled_at is not null) = (status not in ('PENDING', 'WAITING'))),
    check ((task_id is not null) = (status = 'STARTED'))
);
-- A due time is handled once, whoever finds it.
create unique index schedule_runs_due_once on schedule_runs (schedule_id, due_at) where not triggered;
create index schedule_runs_open on schedule_runs (available_at) where available_at is not null;
create index schedule_runs_live on schedule_runs (schedule_id) where live or available_at is not null;
create index schedule_runs_newest on schedule_runs (schedule_id, due_at desc, run_id desc);

---------------------------------------------------------------------------------------------
-- What is shown: one place for the columns that every list and look-up has
---------------------------------------------------------------------------------------------

create function sentences_of(reasons text) returns text
    language sql immutable parallel safe
    return (select string_agg(one, ' ') from json_array_elements_text(reasons::json) as one);

create function moment_text(at timestamptz) returns text
    language sql stable parallel safe
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC';

-- The same clock as tdp_now(), at the start of the statement: for what is shown only. A volatile
-- function in a view keeps the planner from looking into it, and joins to it then read all rows.
create function shown_now() returns timestamptz
    language sql stable parallel safe
    return statement_timestamp()
        + coalesce(nullif(current_setting('tdp.clock_offset', true), ''), '0')::interval;

-- What waits, since when, and what would unblock it, as a sentence without its subject.
-- is_explained: not merely on its way from the engine through the scheduler.
create view waiting_steps as
select
    step.execution_id, step.step_key, step.item_index, step.ready_at as waits_since,
    step.status = 'WAITING' or step.not_before > shown_now() or request.reasons is not null
        as is_explained,
    case
        when step.status = 'WAITING' then
            'waits for an answer since ' || moment_text(step.ready_at) || ': signal it'
            || coalesce(' before ' || moment_text(step.deadline_at), '') || '.'
        when step.not_before > shown_now() then
            'waits until ' || moment_text(step.not_before) || ' for attempt '
            || step.attempt_number
            || coalesce(', since the one before ended with ' || (step.failure::json ->> 'reason'), '')
            || '.'
        when request.waits_for is not null then
            'waits since ' || moment_text(request.created_at) || ': '
            || sentences_of(request.reasons)
        when request.reasons is not null then
            'waits for a node since ' || moment_text(request.created_at) || ': '
            || sentences_of(request.reasons)
        else
            'waits for the scheduler since '
            || moment_text(coalesce(request.created_at, step.ready_at)) || ': it is next.'
    end as sentence
from steps as step
left join scheduling_requests as request
    on
        request.execution_id = step.execution_id
        and request.step_key = step.step_key
        and request.item_index = step.item_index
        and request.attempt_number = step.attempt_number
        and request.status in ('PENDING', 'CLAIMED')
where step.status in ('READY', 'WAITING');

create view shown_executions as
select
    execution.execution_id, execution.task_id, execution.application_id, execution.run,
    execution.status, coalesce(execution.closing_as, '') as closing_as,
    execution.progress_percent, execution.version, execution.last_sequence, execution.paused,
    coalesce(execution.output, '') as output, coalesce(execution.failure, '') as failure,
    execution.created_at, execution.started_at, execution.completed_at,
    case
        when execution.completed_at is not null then ''
        when execution.quarantined_at is not null then
            'Set aside after ' || execution.advance_failures || ' failed advances: '
            || coalesce(execution.advance_error, '') || ' Resume it to try again.'
        when execution.waits_for is not null and execution.status = 'CREATED' then
            'Waits since ' || moment_text(execution.created_at) || ': ' || execution.waits_because
        when execution.paused then
            'Paused' || coalesce(' since ' || moment_text(execution.paused_at), '') || ': resume it.'
        else coalesce((
            select 'Step ' || waiting.step_key || ' ' || waiting.sentence
            from waiting_steps as waiting
            where
                waiting.execution_id = execution.execution_id
                and waiting.is_explained
            order by waiting.waits_since
            limit 1
        ), '')
    end as waiting_for
from executions as execution;

-- The tasks, with their current executions, that fit a filter; null asks for nothing, and so do empty
-- labels. Liveness is 0 for all, 1 for what is live, 2 for what is
-- live and quarantined. It is a text to be planned within its statement. The two tables are joined by run, not by
-- the execution's id: only so does the planner know that either one's order by task_id is the page's.
create function fitting_tasks(
    owner_id uuid, before_id uuid, from_id uuid, statuses text[], liveness integer,
    workflows text[], external_refs text[], wanted_labels jsonb,
    created_from timestamptz, created_before timestamptz,
    completed_from timestamptz, completed_before timestamptz
) returns table (task_id uuid, execution_id uuid, run integer, status text)
    language sql stable parallel safe
begin atomic
    select task.task_id, execution.execution_id, execution.run, execution.status
    from tasks as task
    inner join executions as execution
        on execution.task_id = task.task_id and execution.run = task.current_run
    where
        (owner_id is null or task.application_id = owner_id)
        and (before_id is null or task.task_id < before_id)
        and (before_id is null or execution.task_id < before_id)
        and (from_id is null or task.task_id >= from_id)
        and (from_id is null or execution.task_id >= from_id)
        and (statuses is null or execution.status = any (statuses))
        and (statuses is null or owner_id is null or execution.application_id = owner_id)
        and (liveness = 0 or execution.completed_at is null)
        and (liveness <> 2 or execution.quarantined_at is not null)
        and (workflows is null or task.workflow_name = any (workflows))
        and (external_refs is null or task.external_ref = any (external_refs))
        and (wanted_labels = '{}' or (task.labels <> '{}' and task.labels @> wanted_labels))
        and (created_from is null or task.created_at >= created_from)
        and (created_before is null or task.created_at < created_before)
        and (completed_from is null or execution.completed_at >= completed_from)
        and (completed_before is null or execution.completed_at < completed_before);
end;

-- migrate:down

-- Nothing goes down: a database is restored from its backup, not unmade.
