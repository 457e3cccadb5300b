-- Scheduling: requests are claimed, then dispatched in one transaction a batch. Locks come in this
-- order: advisory, scheduling_requests, executions, nodes, each ascending; steps and attempts change
-- only under their execution's lock.

-- name: claim_requests
-- purpose: takes requests that are due, and parked ones for which there may be room now
-- $1: the claim. $2: how many that are due. $3: how long the claim lasts. $4–$7: what parked ones
-- may ask for, and how many of each. Always answers a row; it names no request where none was taken.
with moment as materialized (
    select tdp_now() as now
),
due as materialized (
    select execution_id, step_key, item_index, attempt_number
    from scheduling_requests
    where status in ('PENDING', 'CLAIMED')
        and available_at <= (select now from moment)
    order by service_rank
    limit $2
    for update skip locked
),
parked as materialized (
    select picked.execution_id, picked.step_key, picked.item_index, picked.attempt_number
    from unnest($4::text[], $5::text[], $6::text[], $7::integer[])
        as opening (capability, capability_version, requirement, request_count)
    cross join lateral (
        select request.execution_id, request.step_key, request.item_index, request.attempt_number
        from scheduling_requests as request
        where request.status = 'PENDING'
            and request.reasons is not null
            and request.waits_for is null
            and request.capability = opening.capability
            and request.capability_version = opening.capability_version
            and request.requirement = opening.requirement
            and not exists (
                select 1
                from executions
                where executions.execution_id = request.execution_id
                    and executions.paused
            )
        order by request.service_rank
        limit opening.request_count
        for update of request skip locked
    ) as picked
),
claimed as (
    update scheduling_requests as request
    set status = 'CLAIMED', claim_id = $1, available_at = moment.now + $3::interval
    from (select * from due union select * from parked) as picked, moment
    where request.execution_id = picked.execution_id
        and request.step_key = picked.step_key
        and request.item_index = picked.item_index
        and request.attempt_number = picked.attempt_number
    returning request.*
)
select
    moment.now,
    (
        select extract(epoch from min(available_at) - moment.now)::float8
        from scheduling_requests
        where status in ('PENDING', 'CLAIMED')
            and available_at > (select now from moment)
    ) as next_due_in_s,
    claimed.execution_id::text, claimed.step_key, claimed.item_index, claimed.attempt_number,
    claimed.application_id::text, claimed.priority, claimed.capability,
    claimed.capability_version, claimed.requirement, claimed.created_at, claimed.limits,
    false as was_parked
from moment
left join claimed on true;

-- name: take_requests
-- purpose: locks requests that are due, and parked ones for which there may be room now
-- $1: how many that are due. $2–$5: what parked ones may ask for, and how many of each: so many of
-- every application that waits, since the plan divides the room between them. The row lock is the claim.
with moment as materialized (
    select tdp_now() as now
),
due as materialized (
    select *
    from scheduling_requests
    where status in ('PENDING', 'CLAIMED')
        and available_at <= (select now from moment)
    order by service_rank
    limit $1
    for update skip locked
),
parked as materialized (
    select picked.*
    from unnest($2::text[], $3::text[], $4::text[], $5::integer[])
        as opening (capability, capability_version, requirement, request_count)
    cross join lateral (
        -- The applications that wait for it, by jumps through the index.
        with recursive application as (
            (
                select waiting.application_id
                from scheduling_requests as waiting
                where waiting.status = 'PENDING'
                    and waiting.reasons is not null
                    and waiting.waits_for is null
                    and waiting.capability = opening.capability
                    and waiting.capability_version = opening.capability_version
                order by waiting.application_id
                limit 1
            )
            union all
            select (
                select waiting.application_id
                from scheduling_requests as waiting
                where waiting.status = 'PENDING'
                    and waiting.reasons is not null
                    and waiting.waits_for is null
                    and waiting.capability = opening.capability
                    and waiting.capability_version = opening.capability_version
                    and waiting.application_id > application.application_id
                order by waiting.application_id
                limit 1
            )
            from application
            where application.application_id is not null
        )
        select application_id, count(*) over () as application_count
        from application
        where application_id is not null
    ) as owner
    cross join lateral (
        select request.*
        from scheduling_requests as request
        where request.status = 'PENDING'
            and request.reasons is not null
            and request.waits_for is null
            and request.capability = opening.capability
            and request.capability_version = opening.capability_version
            and request.application_id = owner.application_id
            and request.requirement = opening.requirement
            and not exists (
                select 1
                from executions
                where executions.execution_id = request.execution_id
                    and executions.paused
            )
        order by request.service_rank
        limit least(opening.request_count, greatest(2 * $1 / owner.application_count, 1))
        for update of request skip locked
    ) as picked
)
select
    moment.now,
    (
        select extract(epoch from min(available_at) - moment.now)::float8
        from scheduling_requests
        where status in ('PENDING', 'CLAIMED')
            and available_at > (select now from moment)
    ) as next_due_in_s,
    taken.execution_id::text, taken.step_key, taken.item_index, taken.attempt_number,
    taken.application_id::text, taken.priority, taken.capability,
    taken.capability_version, taken.requirement, taken.created_at, taken.limits,
    coalesce(taken.reasons is not null and taken.available_at > moment.now, false) as was_parked
from moment
left join (select * from due union select * from parked) as taken on true;

-- name: read_nodes
-- purpose: reads all nodes with what they offer, and how old the news of each is
-- $1: scheduling TTL, $2: lease TTL, both in seconds.
with moment as materialized (
    select tdp_now() as now
)
select
    node.node_id::text, node.name, node.node_group, node.management, node.runtime,
    node.not_ready_reason, node.labels::text as labels, node.weight, node.slot_count,
    node.running_count, node.process_slot_count, node.process_running_count,
    node.cpu_millis, node.memory_bytes, node.disk_bytes, node.gpu_count,
    node.reserved_cpu_millis, node.reserved_memory_bytes, node.reserved_disk_bytes,
    node.reserved_gpu_count, node.last_command_sequence,
    node_news_age_s(
        node.runtime, node.last_seen_at, replica.stamped_at, moment.now, $1, $2
    ) as heartbeat_age_s,
    coalesce((
        select offered.capabilities
        from offered_capabilities as offered
        where offered.node_id = node.node_id
    ), '[]') as capabilities
from nodes as node
cross join moment
left join replicas as replica on replica.replica_id = node.replica_id
order by node.node_id;

-- name: lock_nodes
-- purpose: locks the nodes that a batch wants to use, and reads them as they are then
-- As read_nodes, but for the nodes $3. The columns stand here again because a lock taken through a
-- view would not be taken in the order of the ids.
with moment as materialized (
    select tdp_now() as now
)
select
    node.node_id::text, node.name, node.node_group, node.management, node.runtime,
    node.not_ready_reason, node.labels::text as labels, node.weight, node.slot_count,
    node.running_count, node.process_slot_count, node.process_running_count,
    node.cpu_millis, node.memory_bytes, node.disk_bytes, node.gpu_count,
    node.reserved_cpu_millis, node.reserved_memory_bytes, node.reserved_disk_bytes,
    node.reserved_gpu_count, node.last_command_sequence,
    node_news_age_s(
        node.runtime, node.last_seen_at, replica.stamped_at, moment.now, $1, $2
    ) as heartbeat_age_s,
    coalesce((
        select offered.capabilities
        from offered_capabilities as offered
        where offered.node_id = node.node_id
    ), '[]') as capabilities
from nodes as node
cross join moment
left join replicas as replica on replica.replica_id = node.replica_id
where node.node_id = any($3::uuid[])
order by node.node_id
for update of node;

-- name: count_running
-- purpose: counts the live attempts of each application
select application_id::text, count(*) as running_count
from attempts
where status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
group by application_id;

-- name: parked_requirements
-- purpose: says what the parked requests ask for, and whether that counts as impossible
select capability, capability_version, requirement, bool_or(never_satisfiable) as never_satisfiable
from scheduling_requests
where status = 'PENDING'
    and reasons is not null
    and waits_for is null
group by capability, capability_version, requirement
limit $1;

-- name: reassess_requests
-- purpose: says anew of parked requests whether a known node could ever meet them
-- $1–$5: one row for each thing that is asked for. Locked rows are somebody's who will say it.
with given as materialized (
    select *
    from unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::text[])
        as given (capability, capability_version, requirement, never_satisfiable, reasons)
),
free as materialized (
    select
        request.execution_id, request.step_key, request.item_index, request.attempt_number,
        given.never_satisfiable, given.reasons
    from scheduling_requests as request
    inner join given
        on given.capability = request.capability
        and given.capability_version = request.capability_version
        and given.requirement = request.requirement
    where request.status = 'PENDING'
        and request.reasons is not null
        and request.waits_for is null
        and request.never_satisfiable <> given.never_satisfiable
    for update of request skip locked
)
update scheduling_requests as request
set never_satisfiable = free.never_satisfiable, reasons = free.reasons
from free
where request.execution_id = free.execution_id
    and request.step_key = free.step_key
    and request.item_index = free.item_index
    and request.attempt_number = free.attempt_number;

-- name: lock_requests
-- purpose: locks claimed requests, each under the advisory lock of its attempt
-- $1: the claim, $2–$5: the requests. Those that are no longer the claim's are left out.
with wanted as materialized (
    select *
    from unnest($2::uuid[], $3::text[], $4::integer[], $5::integer[])
        as given (execution_id, step_key, item_index, attempt_number)
),
advisory as materialized (
    select pg_advisory_xact_lock(ordered.key)
    from (
        select distinct hashtextextended(
            wanted.execution_id || ':' || wanted.step_key || ':' || wanted.item_index
            || ':' || wanted.attempt_number,
            0
        ) as key
        from wanted
        order by key
    ) as ordered
)
select
    request.execution_id::text, request.step_key, request.item_index, request.attempt_number
from scheduling_requests as request
inner join wanted
    on wanted.execution_id = request.execution_id
    and wanted.step_key = request.step_key
    and wanted.item_index = request.item_index
    and wanted.attempt_number = request.attempt_number
where request.status = 'CLAIMED'
    and request.claim_id = $1
    and (select count(*) from advisory) >= 0
order by request.execution_id, request.step_key, request.item_index, request.attempt_number
for update of request;

-- name: lock_requesting
-- purpose: locks the executions of locked requests, and reads what a dispatch says of these
select
    execution.execution_id::text, execution.task_id::text, execution.application_id::text,
    execution.run, execution.status, execution.closing_as, execution.paused,
    execution.progress_percent, execution.last_sequence, execution.snapshot_digest,
    task.external_ref, task.traceparent, task.callback_url <> '' as with_callback
from executions as execution
inner join tasks as task on task.task_id = execution.task_id
where execution.execution_id = any($1::uuid[])
order by execution.execution_id
for update of execution;

-- name: read_steps
-- purpose: reads the steps of locked requests, attempts that are there already, and the time
with moment as materialized (
    select tdp_now() as now
)
select
    moment.now, given.execution_id::text, given.step_key, given.item_index, given.attempt_number,
    step.status, step.attempt_number as step_attempt_number, step.deadline_at, step.ready_at,
    step.input, attempt.node_id::text as attempt_node_id
from unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[])
    as given (execution_id, step_key, item_index, attempt_number)
cross join moment
inner join steps as step
    on step.execution_id = given.execution_id
    and step.step_key = given.step_key
    and step.item_index = given.item_index
left join attempts as attempt
    on attempt.execution_id = given.execution_id
    and attempt.step_key = given.step_key
    and attempt.item_index = given.item_index
    and attempt.number = given.attempt_number;

-- name: read_input_schemas
-- purpose: reads the registered schemas of what capabilities take
select capability, version, input_schema
from capability_schemas
where (capability, version) in (select * from unnest($1::text[], $2::text[]));

-- name: dispatch
-- purpose: writes everything that a dispatch changes but its events, for a whole batch
-- $1: lease TTL. $2–$20: attempts with their commands. $21–$28: what becomes of the requests.
-- $29–$32: steps whose input is refused. $33–$35: executions; $36–$42: nodes. Each row occurs once.
-- $43, $44: of each attempt whether it takes a process slot, and of each node how many are taken.
with placed as materialized (
    select *
    from unnest(
        $2::uuid[], $3::uuid[], $4::text[], $5::integer[], $6::integer[], $7::uuid[], $8::uuid[],
        $9::uuid[], $10::timestamptz[], $11::bigint[], $12::bigint[], $13::bigint[],
        $14::bigint[], $15::uuid[], $16::bigint[], $17::text[], $18::text[], $19::text[],
        $20::boolean[], $43::boolean[]
    ) as given (
        attempt_id, execution_id, step_key, item_index, number, task_id, application_id,
        node_id, run_deadline_at, cpu_millis, memory_bytes, disk_bytes,
        gpu_count, command_id, command_sequence, payload, actor, detail, holds_slots,
        takes_process_slot
    )
),
moment as materialized (
    select tdp_now() as now
),
request as (
    update scheduling_requests
    set
        status = given.status,
        claim_id = null,
        available_at = case
            when given.status = 'PENDING'
                then moment.now + make_interval(secs => given.wait_s)
            else scheduling_requests.available_at
        end,
        reasons = given.reasons,
        waits_for = given.waits_for
    from unnest(
        $21::uuid[], $22::text[], $23::integer[], $24::integer[], $25::text[], $26::float8[],
        $27::text[], $28::text[]
    ) as given (
        execution_id, step_key, item_index, attempt_number, status, wait_s, reasons, waits_for
    ), moment
    where scheduling_requests.execution_id = given.execution_id
        and scheduling_requests.step_key = given.step_key
        and scheduling_requests.item_index = given.item_index
        and scheduling_requests.attempt_number = given.attempt_number
),
execution as (
    update executions
    set
        status = case when given.version_added > 0 then 'RUNNING' else executions.status end,
        version = executions.version + given.version_added,
        last_sequence = executions.last_sequence + least(given.version_added, 1),
        started_at = case
            when given.version_added > 0 then coalesce(executions.started_at, moment.now)
            else executions.started_at
        end,
        next_due_at = case when given.is_due then moment.now else executions.next_due_at end
    from unnest($33::uuid[], $34::integer[], $35::boolean[])
        as given (execution_id, version_added, is_due), moment
    where executions.execution_id = given.execution_id
),
step as (
    update steps
    set
        status = 'RUNNING',
        progress_percent = 0,
        not_before = null,
        deadline_at = null,
        started_at = coalesce(steps.started_at, moment.now)
    from placed, moment
    where steps.execution_id = placed.execution_id
        and steps.step_key = placed.step_key
        and steps.item_index = placed.item_index
),
refused as (
    update steps
    set status = 'FAILED', failure = given.failure, deadline_at = null, completed_at = moment.now
    from unnest($29::uuid[], $30::text[], $31::integer[], $32::text[])
        as given (execution_id, step_key, item_index, failure), moment
    where steps.execution_id = given.execution_id
        and steps.step_key = given.step_key
        and steps.item_index = given.item_index
),
attempt as (
    insert into attempts (
        attempt_id, execution_id, step_key, item_index, number, task_id, application_id, node_id,
        lease_version, lease_expires_at, status, run_deadline_at, reserved_cpu_millis,
        reserved_memory_bytes, reserved_disk_bytes, reserved_gpu_count, holds_slots,
        takes_process_slot, dispatched_at
    )
    select
        attempt_id, execution_id, step_key, item_index, number, task_id, application_id, node_id,
        number, moment.now + $1::interval, 'DISPATCHED', run_deadline_at, cpu_millis,
        memory_bytes, disk_bytes, gpu_count, holds_slots, takes_process_slot, moment.now
    from placed, moment
),
told as (
    insert into timeline (execution_id, step_key, item_index, attempt_id, type, actor, detail)
    select
        execution_id, step_key, item_index, attempt_id, 'attempt.dispatched', actor, detail
    from placed
),
node as (
    update nodes
    set
        running_count = nodes.running_count + given.attempt_count,
        process_running_count = nodes.process_running_count + given.process_count,
        reserved_cpu_millis = nodes.reserved_cpu_millis + given.cpu_millis,
        reserved_memory_bytes = nodes.reserved_memory_bytes + given.memory_bytes,
        reserved_disk_bytes = nodes.reserved_disk_bytes + given.disk_bytes,
        reserved_gpu_count = nodes.reserved_gpu_count + given.gpu_count,
        last_command_sequence = given.last_command_sequence
    from unnest(
        $36::uuid[], $37::integer[], $38::bigint[], $39::bigint[], $40::bigint[], $41::bigint[],
        $42::bigint[], $44::integer[]
    ) as given (
        node_id, attempt_count, cpu_millis, memory_bytes, disk_bytes, gpu_count,
        last_command_sequence, process_count
    )
    where nodes.node_id = given.node_id
)
insert into node_commands (node_id, sequence, command_id, kind, attempt_id, payload)
select node_id, command_sequence, command_id, 'RUN', attempt_id, payload
from placed;

-- name: park_requests
-- purpose: puts requests back with why they found no node
-- $1: the claim; null where the transaction has locked the requests itself. $2–$7: the requests. $8: when to look at one again even if nothing frees capacity.
update scheduling_requests as request
set
    status = 'PENDING',
    claim_id = null,
    available_at = tdp_now() + $8::interval,
    reasons = given.reasons,
    waits_for = null,
    never_satisfiable = given.never_satisfiable
from unnest($2::uuid[], $3::text[], $4::integer[], $5::integer[], $6::text[], $7::boolean[])
    as given (execution_id, step_key, item_index, attempt_number, reasons, never_satisfiable)
where request.execution_id = given.execution_id
    and request.step_key = given.step_key
    and request.item_index = given.item_index
    and request.attempt_number = given.attempt_number
    and ($1::uuid is null or (request.status = 'CLAIMED' and request.claim_id = $1));

-- name: release_requests
-- purpose: makes the waiting requests of an execution due at once, as when it is resumed
-- The execution is locked. A request that is being dispatched just now is left out: its dispatch
-- waits for the execution and sees it resumed.
with waiting as materialized (
    select step_key, item_index, attempt_number
    from scheduling_requests
    where execution_id = $1
        and status = 'PENDING'
        and reasons is not null
    for update skip locked
)
update scheduling_requests
set available_at = tdp_now()
from waiting
where scheduling_requests.execution_id = $1
    and scheduling_requests.step_key = waiting.step_key
    and scheduling_requests.item_index = waiting.item_index
    and scheduling_requests.attempt_number = waiting.attempt_number;
