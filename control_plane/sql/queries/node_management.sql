-- What operators do with nodes. Locks: executions, attempts, then the node's row.

-- name: set_management
-- purpose: says what a node may do and orders it to drain, or to work again, where that is news to it
-- $1: node, $2: management, $3: who, $4: why, $5: the grace of a drain (null for none or no end).
-- $6, $7: id and payload of the command. No row comes back for an unknown node.
with locked as materialized (
    select
        node_id,
        case
            when $2 = 'DRAINING' then 'DRAIN'
            when management = 'DRAINING' then 'UNDRAIN'
        end as kind
    from nodes
    where node_id = $1
    for update
),
changed as (
    update nodes
    set
        management = $2,
        managed_by = $3,
        management_reason = $4,
        drain_deadline_at = tdp_now() + $5::interval,
        last_command_sequence
            = nodes.last_command_sequence + case when locked.kind is null then 0 else 1 end
    from locked
    where nodes.node_id = locked.node_id
    returning nodes.node_id, nodes.last_command_sequence, locked.kind
),
ordered as (
    insert into node_commands (node_id, sequence, command_id, kind, payload)
    select node_id, last_command_sequence, $6, kind, $7
    from changed
    where kind is not null
)
select kind is not null as is_ordered
from changed;

-- name: set_placement
-- purpose: sets the trusted labels, the weight and the group of a node; no row for an unknown node
update nodes
set labels = $2::text::jsonb, weight = $3, node_group = $4
where node_id = $1
returning node_id;

-- name: live_attempts_of_node
-- purpose: names what a node still has to do
select attempt_id
from attempts
where node_id = $1
    and status in ('DISPATCHED', 'ACCEPTED', 'RUNNING')
    and pending_result is null
order by attempt_id;

-- name: lock_node_for_removal
-- purpose: locks a node's row, so that nothing is dispatched to it meanwhile
select name
from nodes
where node_id = $1
for update;

-- name: remove_node
-- purpose: forgets a node with its credential, and what it was ordered and has not stored
with voided as (
    update node_commands
    set status = 'VOIDED'
    where node_id = $1
        and status in ('PENDING', 'SENT')
)
delete from nodes
where node_id = $1;
