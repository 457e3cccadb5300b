-- What the gauges are read from: counts of what is open, each through a partial index.

-- name: waiting_requests
-- purpose: counts the requests that wait for a node, by capability; those in back-off do not wait
select
    capability, capability_version,
    count(*) as waiting_count,
    count(*) filter (where never_satisfiable) as never_count,
    extract(epoch from tdp_now() - min(created_at))::float8 as oldest_age_s
from scheduling_requests
where
    status in ('PENDING', 'CLAIMED')
    and (reasons is not null or available_at <= (select tdp_now()) or status = 'CLAIMED')
group by capability, capability_version
order by waiting_count desc, capability, capability_version
limit $1;

-- name: live_executions
-- purpose: counts the live executions by status
select
    status,
    count(*) as live_count,
    count(*) filter (where paused) as paused_count,
    count(*) filter (where quarantined_at is not null) as quarantined_count
from executions
where completed_at is null
group by status;

-- name: finished_executions
-- purpose: counts the executions that ended in the last minute by status
select status, count(*) as finished_count
from executions
where completed_at is not null and completed_at > (select tdp_now()) - interval '1 minute'
group by status;

-- name: node_slots
-- purpose: counts nodes and their slots by state
select
    runtime, management,
    count(*) as node_count,
    sum(slot_count)::bigint as slot_count,
    sum(running_count)::bigint as used_count
from nodes
group by runtime, management;

-- name: open_work
-- purpose: counts commands that nodes have not stored yet, and attempts that are live
select
    (
        select count(*) from node_commands where status in ('PENDING', 'SENT')
    ) as open_command_count,
    (
        select count(*) from attempts where status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
    ) as live_attempt_count;
