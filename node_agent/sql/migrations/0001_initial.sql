-- migrate:up

-- The journal of one node agent: what it acknowledged, what it works on, what it has to tell.

-- Whose journal this is, and the marks that outlive a process.
create table identity (
    only_row integer primary key check (only_row = 1),
    -- New with each journal: a new file is a new incarnation of the node.
    incarnation_id text not null check (incarnation_id <> ''),
    -- Empty until the node is enrolled.
    node_id text not null default '',
    -- Hexadecimal hash of the credential, which has a file of its own.
    credential_sha256 text not null default '',
    -- Every command up to this sequence is stored; it never goes back.
    last_command_sequence integer not null default 0 check (last_command_sequence >= 0),
    is_draining integer not null default 0 check (is_draining in (0, 1)),
    drain_grace_s real not null default 0 check (drain_grace_s >= 0),
    -- Writes that were made to see whether the file can be written.
    probe_count integer not null default 0,
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now'))
);

-- Commands about attempts that are held; the sequence of others lives in the watermark alone.
create table inbox (
    sequence integer primary key check (sequence > 0),
    command_id text not null unique,
    kind text not null check (kind in ('RUN', 'CANCEL', 'EXTEND')),
    attempt_id text not null,
    document text not null,
    received_at text not null default (strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now'))
);

create index inbox_attempt on inbox (attempt_id);

-- Attempts until their final event is acknowledged, or they are forgotten.
create table attempts (
    attempt_id text primary key,
    lease_version integer not null check (lease_version >= 1),
    -- The RUN command in the inbox.
    sequence integer not null unique,
    is_started integer not null check (is_started in (0, 1)),
    is_finished integer not null default 0 check (is_finished in (0, 1)),
    stop_reason text check (stop_reason in ('CANCEL', 'TIMEOUT', 'DRAIN')),
    -- With extensions; 0 for none.
    run_timeout_s real not null default 0 check (run_timeout_s >= 0)
) without rowid;

create trigger attempt_leaves_inbox after delete on attempts
begin
    delete from inbox where attempt_id = old.attempt_id;
end;

create table checkpoints (
    attempt_id text primary key references attempts (attempt_id) on delete cascade,
    document text not null,
    saved_at text not null default (strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now'))
) without rowid;

-- Which artifacts an attempt has reported, each path once.
create table artifact_paths (
    attempt_id text not null references attempts (attempt_id) on delete cascade,
    relative_path text not null,
    primary key (attempt_id, relative_path)
) without rowid;

-- The outbox: the columns that every outbox in SQLite has, then our own.
create table node_events (
    position integer primary key autoincrement,
    outbox_id text not null unique,
    ordering_key text,
    destination text not null check (destination <> ''),
    payload text not null,
    status text not null default 'PENDING'
        check (status in ('PENDING', 'PUBLISHING', 'FAILED', 'PUBLISHED', 'DEAD', 'QUARANTINED')),
    attempts integer not null default 0 check (attempts >= 0),
    claims integer not null default 0 check (claims >= 0),
    claim_id text,
    available_at real not null default 0,
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')),
    published_at text,
    last_error text,
    held integer not null default 0 check (held in (0, 1)),
    redriven integer not null default 0 check (redriven in (0, 1)),
    attempt_id text not null,
    lease_version integer not null check (lease_version >= 1),
    boot_id text not null,
    occurred_at text not null,
    is_final integer not null check (is_final in (0, 1)),
    check (status <> 'PUBLISHING' or claim_id is not null)
);

create index node_events_due on node_events (available_at, position)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

create index node_events_ordering on node_events (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;

-- An attempt is over for the node once its final event is acknowledged: in that very transaction.
create trigger final_event_ends_attempt after delete on node_events
when old.is_final
begin
    delete from attempts where attempt_id = old.attempt_id;
end;

-- migrate:down
drop table node_events;
drop table artifact_paths;
drop table checkpoints;
drop table attempts;
drop table inbox;
drop table identity;
