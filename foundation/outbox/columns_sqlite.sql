-- The columns that every outbox table in SQLite has: those of columns.sql, for one process that
-- owns the file. Copy this into a migration with {{table}} replaced, and add your own columns.
--
-- available_at   seconds of the owner's monotonic clock, so that a wall clock that jumps delays
--                nothing. It means nothing after a restart: the store then makes all rows due.
-- created_at     wall time in UTC, ISO 8601, for people only.
-- position       never used twice, also after its row is gone: the watermark stays.
create table {{table}} (
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
    check (status <> 'PUBLISHING' or claim_id is not null)
);

create index {{table}}_due on {{table}} (available_at, position)
    where status in ('PENDING', 'FAILED', 'PUBLISHING');

create index {{table}}_ordering on {{table}} (ordering_key, position)
    where ordering_key is not null and status <> 'PUBLISHED' and not redriven;
