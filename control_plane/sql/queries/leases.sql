-- The rules are those of core/nodes/leases; the docstrings there give each predicate.

-- name: judge_guard
-- purpose: judges the lease guard before a sweep or a Hello judges a lease
-- $1: the lease TTL. Written only where it changes and only if its lock is free; who cannot write
-- acts upon the judged row all the same. Leases that a clock gone back left too long are pulled in.
with moment as materialized (
    select tdp_now() as now
),
guard as materialized (
    select
        lease_guard.hold_until as held_before,
        moment.now,
        judged_hold_until(
            lease_guard.stamped_at, lease_guard.hold_until, moment.now, $1::interval
        ) as hold_until
    from lease_guard, moment
),
free as materialized (
    select lease_guard.id
    from lease_guard, guard
    where guard.hold_until <> guard.held_before
    for update of lease_guard skip locked
),
written as (
    update lease_guard
    set hold_until = guard.hold_until
    from guard, free
    where lease_guard.id = free.id
),
overlong as materialized (
    select attempts.attempt_id
    from attempts, moment
    where attempts.lease_expires_at is not null
        and attempts.lease_expires_at > (select now from moment) + $1::interval * 13 / 12
    for update of attempts skip locked
),
bounded as (
    update attempts
    set lease_expires_at = moment.now + $1::interval
    from overlong, moment
    where attempts.attempt_id = overlong.attempt_id
)
select
    now as as_of,
    hold_until,
    (
        select extract(epoch from min(lease_expires_at) - guard.now)::float8
        from attempts
        where lease_expires_at is not null
    ) as due_in_s
from guard;

-- name: expired_attempts
-- purpose: names attempts whose leases ran out, the oldest first
select attempt_id, execution_id
from attempts
where lease_expires_at is not null
    and lease_expires_at <= least($1::timestamptz, (select tdp_now()))
    and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
order by lease_expires_at
limit $2;

-- name: lock_expired
-- purpose: locks those of some attempts whose lease is over even now, as their locked rows say
select attempt_id
from attempts
where attempt_id = any($1::uuid[])
    and lease_expires_at is not null
    and lease_expires_at <= least($2::timestamptz, (select tdp_now()))
    and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
order by attempt_id
for update skip locked;

-- name: renew_leases
-- purpose: one tick: renews the listed leases that are due, judges the guard and stamps it
-- $1: lease TTL. $2, $3: the replica and its version. $4, $5: nodes in session here with their generation.
-- $6–$8: listed leases (node, attempt, version), none twice. The answer names, as outcomes, REPLACED
-- for a node whose session is over, RENEWED and LOST for leases; others are in neither list.
with moment as materialized (
    select tdp_now() as now
),
guard as materialized (
    select
        lease_guard.stamped_at,
        lease_guard.hold_until as held_before,
        moment.now,
        judged_hold_until(
            lease_guard.stamped_at, lease_guard.hold_until, moment.now, $1::interval
        ) as hold_until
    from lease_guard, moment
),
session as materialized (
    select given.node_id, nodes.generation is not distinct from given.generation as is_current
    from unnest($4::uuid[], $5::bigint[]) as given (node_id, generation)
    left join nodes on nodes.node_id = given.node_id
),
listed as materialized (
    select
        given.node_id, given.attempt_id, given.lease_version, attempts.lease_expires_at,
        (
            attempts.attempt_id is not null
            and attempts.node_id = given.node_id
            and attempts.lease_version = given.lease_version
            and attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
            and attempts.lease_expires_at is not null
            and greatest(attempts.lease_expires_at, guard.hold_until) > guard.now
        ) as is_held,
        (
            attempts.lease_expires_at - guard.now < $1::interval * 5 / 6
            or attempts.lease_expires_at - guard.now > $1::interval
        ) as is_due
    from unnest($6::uuid[], $7::uuid[], $8::bigint[])
        as given (node_id, attempt_id, lease_version)
    inner join session on session.node_id = given.node_id and session.is_current
    cross join guard
    left join attempts on attempts.attempt_id = given.attempt_id
),
free as materialized (
    select attempts.attempt_id
    from attempts
    inner join listed on listed.attempt_id = attempts.attempt_id
    cross join guard
    where listed.is_held
        and listed.is_due
        -- Repeated on the locked row: another transaction may have ended it meanwhile.
        and attempts.node_id = listed.node_id
        and attempts.lease_version = listed.lease_version
        and attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
        and attempts.lease_expires_at is not null
        and greatest(attempts.lease_expires_at, guard.hold_until) > guard.now
    order by attempts.attempt_id
    for update of attempts skip locked
),
renewed as (
    update attempts
    set lease_expires_at = moment.now + $1::interval
    from free, moment
    where attempts.attempt_id = free.attempt_id
    returning attempts.attempt_id
),
starved as materialized (
    select exists (
        select 1
        from listed, guard
        where listed.is_held
            and listed.is_due
            and listed.lease_expires_at - guard.now < $1::interval / 2
            and listed.attempt_id not in (select attempt_id from renewed)
    ) as is_so
),
free_guard as materialized (
    select lease_guard.id
    from lease_guard, guard, starved
    where starved.is_so
        or guard.hold_until <> guard.held_before
        or (
            (
                guard.now - guard.stamped_at >= $1::interval / 12
                or guard.stamped_at - guard.now >= $1::interval / 12
            )
            and exists (select 1 from attempts where lease_expires_at is not null)
        )
    for update of lease_guard skip locked
),
stamped as (
    update lease_guard
    set
        stamped_at = guard.now,
        hold_until = case
            when starved.is_so then guard.now + $1::interval else guard.hold_until
        end
    from guard, starved, free_guard
    where lease_guard.id = free_guard.id
),
replica as (
    insert into replicas (replica_id, version, stamped_at)
    select $2::uuid, $3::text, now
    from moment
    on conflict (replica_id) do update set stamped_at = excluded.stamped_at
)
select node_id, null::uuid as attempt_id, null::bigint as lease_version, 'REPLACED' as outcome
from session
where not is_current
union all
select node_id, attempt_id, lease_version, 'RENEWED'
from listed
-- Another node may list the same attempt, wrongly: only its holder's lease was renewed.
where is_held and attempt_id in (select attempt_id from renewed)
union all
select node_id, attempt_id, lease_version, 'LOST'
from listed
where not is_held;

-- name: write_node_states
-- purpose: notes what sessions show of their nodes: heard of, ready or not, silent
-- No node occurs twice. Rows that are locked are left for the next tick; those written are named.
with given as materialized (
    select *
    from unnest(
        $1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[]
    )
        as given (
            node_id, generation, runtime, not_ready_reason, disk_bytes, cpu_used_millis,
            memory_available_bytes
        )
),
free as materialized (
    select nodes.node_id
    from nodes
    inner join given on given.node_id = nodes.node_id and given.generation = nodes.generation
    order by nodes.node_id
    for update of nodes skip locked
)
update nodes
set
    runtime = given.runtime,
    not_ready_reason = given.not_ready_reason,
    disk_bytes = case when given.disk_bytes > 0 then given.disk_bytes else nodes.disk_bytes end,
    cpu_used_millis = given.cpu_used_millis,
    memory_available_bytes = given.memory_available_bytes,
    last_seen_at = case when given.runtime = 'SILENT' then nodes.last_seen_at else tdp_now() end
from given
inner join free on free.node_id = given.node_id
where nodes.node_id = given.node_id
returning nodes.node_id;

-- name: write_progress
-- purpose: raises the progress of live attempts and their steps, and wakes the engine for them
-- No attempt occurs twice. Progress is not worth a wait: what is locked is left out.
with given as materialized (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::integer[])
        as given (attempt_id, node_id, lease_version, progress_percent)
),
candidate as materialized (
    select attempts.attempt_id, attempts.execution_id, given.progress_percent
    from given
    inner join attempts on attempts.attempt_id = given.attempt_id
    where attempts.node_id = given.node_id
        and attempts.lease_version = given.lease_version
        and attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
        and attempts.pending_result is null
        and (
            attempts.progress_percent < given.progress_percent
            or attempts.status <> 'RUNNING'
        )
),
execution as materialized (
    select execution_id
    from executions
    where execution_id in (select execution_id from candidate)
        and completed_at is null
    order by execution_id
    for update skip locked
),
free as materialized (
    select attempts.attempt_id
    from attempts
    inner join candidate on candidate.attempt_id = attempts.attempt_id
    inner join execution on execution.execution_id = attempts.execution_id
    where attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
        and attempts.pending_result is null
    order by attempts.attempt_id
    for update of attempts skip locked
),
attempt as (
    update attempts
    set
        status = 'RUNNING',
        progress_percent = greatest(attempts.progress_percent, candidate.progress_percent),
        accepted_at = coalesce(attempts.accepted_at, tdp_now()),
        started_at = coalesce(attempts.started_at, tdp_now())
    from candidate
    inner join free on free.attempt_id = candidate.attempt_id
    where attempts.attempt_id = candidate.attempt_id
    returning
        attempts.execution_id, attempts.step_key, attempts.item_index, attempts.number,
        attempts.progress_percent
),
step as (
    update steps
    set progress_percent = attempt.progress_percent
    from attempt
    where steps.execution_id = attempt.execution_id
        and steps.step_key = attempt.step_key
        and steps.item_index = attempt.item_index
        and steps.attempt_number = attempt.number
        and steps.status = 'RUNNING'
        and steps.progress_percent < attempt.progress_percent
    returning steps.execution_id
),
woken as (
    update executions
    set next_due_at = tdp_now()
    where execution_id in (select execution_id from step)
    returning execution_id
)
select execution_id
from woken;
