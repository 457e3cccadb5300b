-- name: find_join_token
-- purpose: finds the token of a hash, and whether it is still good
select
    join_token_id, node_group, revoked_at is not null as is_revoked,
    expires_at <= tdp_now() as is_expired,
    use_count_max > 0 and use_count >= use_count_max as is_spent
from join_tokens
where token_sha256 = $1;

-- name: use_join_token
-- purpose: counts one use of a token that is still good; no row comes back when it is not
update join_tokens
set use_count = use_count + 1
where join_token_id = $1
    and revoked_at is null
    and expires_at > tdp_now()
    and (use_count_max = 0 or use_count < use_count_max)
returning node_group;

-- name: insert_node
-- purpose: stores a new node; no row comes back when its name or credential is taken
insert into nodes (node_id, name, credential_sha256, node_group)
values ($1, $2, $3, $4)
on conflict do nothing
returning node_id;

-- name: find_node_by_name
-- purpose: finds the node that has a name
select node_id from nodes where name = $1;

-- name: find_node_by_credential
-- purpose: finds the node that a credential speaks for
select node_id from nodes where credential_sha256 = $1;

-- name: known_schemas
-- purpose: reads the registered schemas of capabilities
select capability, version, input_schema, output_schema
from capability_schemas
where (capability, version) in (select * from unnest($1::text[], $2::text[]));

-- name: register_schemas
-- purpose: registers the schemas of capabilities that no node declared before
insert into capability_schemas (capability, version, input_schema, output_schema, first_node_id)
select given.capability, given.version, given.input_schema, given.output_schema, $5::uuid
from unnest($1::text[], $2::text[], $3::text[], $4::text[])
    as given (capability, version, input_schema, output_schema)
order by given.capability, given.version
on conflict do nothing;

-- name: lock_held_attempts
-- purpose: locks what a node holds or should hold, for the verdicts of Welcome
select
    attempt_id, node_id, lease_version, status, stop_reason,
    pending_result is not null as is_pending,
    extract(epoch from lease_expires_at)::float8 as lease_expires_at_s,
    (
        select max(node_commands.sequence)
        from node_commands
        where node_commands.attempt_id = attempts.attempt_id
            and node_commands.kind = 'RUN'
            and node_commands.node_id = attempts.node_id
    ) as run_sequence
from attempts
where attempt_id = any($2::uuid[])
    or (node_id = $1 and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING'))
order by attempt_id
for update;

-- name: lock_node
-- purpose: locks a node's row
select
    name, generation, boot_id::text, incarnation_id, acked_command_sequence, last_command_sequence,
    management
from nodes
where node_id = $1
for update;

-- name: open_session
-- purpose: writes a new session: generation, what the node is and has, renewed leases, what is sent again
-- $15: attempts to renew for the TTL $16. $17–$19: declared capabilities with their refusals.
-- Commands above the acknowledged sequence are sent again, but for RUNs whose attempt is over.
with moment as materialized (
    select tdp_now() as now
),
renewed as (
    update attempts
    set
        lease_expires_at = moment.now + $16::interval,
        status = case when attempts.status = 'DISPATCHED' then 'ACCEPTED' else attempts.status end,
        accepted_at = coalesce(attempts.accepted_at, moment.now)
    from moment
    where attempts.attempt_id = any($15::uuid[])
),
acked as (
    update node_commands
    set status = 'ACKED', acked_at = moment.now
    from moment
    where node_commands.node_id = $1
        and node_commands.status = 'SENT'
        and node_commands.sequence <= $14
),
again as (
    update node_commands
    set status = case
        when node_commands.kind = 'RUN' and not exists (
            select 1
            from attempts
            where attempts.attempt_id = node_commands.attempt_id
                and attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
        ) then 'VOIDED'
        else 'PENDING'
    end
    where node_commands.node_id = $1
        and node_commands.status = 'SENT'
        and node_commands.sequence > $14
),
removed as (
    delete from node_capabilities
    where node_id = $1
        and (capability, version) not in (select * from unnest($17::text[], $18::text[]))
),
declared as (
    insert into node_capabilities (node_id, capability, version, refusal, inline)
    select $1, given.capability, given.version, given.refusal, given.inline
    from unnest($17::text[], $18::text[], $19::text[], $20::boolean[])
        as given (capability, version, refusal, inline)
    on conflict (node_id, capability, version)
    do update set refusal = excluded.refusal, inline = excluded.inline
)
update nodes
set
    generation = nodes.generation + 1,
    boot_id = $2::uuid,
    incarnation_id = $3::uuid,
    replica_id = $4::uuid,
    agent_version = $5::text,
    runtime = $6::text,
    not_ready_reason = $7::text,
    slot_count = $8::integer,
    process_slot_count = $21::integer,
    cpu_millis = $9::bigint,
    memory_bytes = $10::bigint,
    disk_bytes = $11::bigint,
    gpu_count = $12::integer,
    last_command_sequence = greatest(nodes.last_command_sequence, $13::bigint),
    acked_command_sequence = $14::bigint,
    last_seen_at = moment.now
from moment
where nodes.node_id = $1::uuid
returning nodes.generation;

-- name: confirm_missing
-- purpose: locks those attempts that the node still should hold under its current session
select attempts.attempt_id
from unnest($3::uuid[], $4::bigint[]) as given (attempt_id, lease_version)
inner join attempts
    on attempts.attempt_id = given.attempt_id and attempts.lease_version = given.lease_version
inner join nodes on nodes.node_id = attempts.node_id
where attempts.node_id = $1::uuid
    and nodes.generation = $2::bigint
    and attempts.status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
    and attempts.pending_result is null
order by attempts.attempt_id
for update of attempts;

-- name: note_resumed
-- purpose: records that a restarted agent goes on with attempts that it had begun before
insert into timeline (execution_id, step_key, item_index, attempt_id, type, actor, detail)
select
    execution_id, step_key, item_index, attempt_id, 'attempt.resumed', 'node:' || $1::text,
    json_build_object('attempt', number, 'boot_id', $2::text)::text
from attempts
where attempt_id = any($3::uuid[])
order by attempt_id;

-- name: close_sessions
-- purpose: notes that sessions are over, unless newer ones have replaced them
update nodes
set runtime = 'SILENT', not_ready_reason = '', replica_id = null
from unnest($1::uuid[], $2::bigint[]) as given (node_id, generation)
where nodes.node_id = given.node_id
    and nodes.generation = given.generation;

-- name: list_nodes
-- purpose: reads a page of nodes by name, or one node
select
    nodes.*,
    nodes.labels::text as labels_json,
    (
        select coalesce(json_agg(json_build_object(
            'name', capability, 'version', version, 'refusal', refusal
        ) order by capability, version), '[]')::text
        from node_capabilities
        where node_capabilities.node_id = nodes.node_id
    ) as capabilities_json,
    (
        select count(*)
        from node_commands
        where node_commands.node_id = nodes.node_id
            and node_commands.status in ('PENDING', 'SENT')
    ) as unacked_command_count
from nodes
where nodes.name > $1
    and ($2::uuid is null or nodes.node_id = $2::uuid)
order by nodes.name
limit $3;

-- name: insert_join_token
-- purpose: registers the hash of a join token; no row comes back when the hash is known
insert into join_tokens (join_token_id, token_sha256, node_group, use_count_max, expires_at)
values ($1, $2, $3, $4, tdp_now() + $5::interval)
on conflict do nothing
returning expires_at;

-- name: find_join_token_by_hash
-- purpose: finds the token that has a hash
select join_token_id from join_tokens where token_sha256 = $1;

-- name: read_join_token
-- purpose: says when a token ends
select expires_at from join_tokens where join_token_id = $1;

-- name: revoke_join_token
-- purpose: ends a token; no row comes back for an unknown one
update join_tokens
set revoked_at = coalesce(revoked_at, tdp_now())
where join_token_id = $1
returning join_token_id;
