-- name: take_commands
-- purpose: marks the next commands of some nodes as SENT and returns them, to be written once committed
-- $1–$4: one row a node in session here: generation, RUN credits, and how many commands may be
-- unacknowledged (the window). $5: lease TTL. $6: after how long without an ack one is sent again.
-- A RUN without a credit holds back what follows it, since commands are stored in order.
with session as materialized (
    select given.node_id, given.credit_count, given.window_size
    from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[])
        as given (node_id, generation, credit_count, window_size)
    inner join nodes on nodes.node_id = given.node_id and nodes.generation = given.generation
),
moment as materialized (
    select tdp_now() as now
),
picked as materialized (
    select session.node_id, open.sequence, open.status
    from session
    cross join lateral (
        select
            command.sequence, command.status, command.sent_at,
            count(*) filter (where command.kind = 'RUN' and command.status = 'PENDING')
                over (order by command.sequence) as run_count
        from (
            select sequence, status, sent_at, kind
            from node_commands
            where node_commands.node_id = session.node_id
                and node_commands.status in ('PENDING', 'SENT')
            order by sequence
            limit session.window_size
        ) as command
    ) as open
    cross join moment
    where (open.status = 'PENDING' and open.run_count <= session.credit_count)
        or (open.status = 'SENT' and open.sent_at <= moment.now - $6::interval)
),
sent as (
    update node_commands
    set status = 'SENT', sent_at = moment.now, send_count = node_commands.send_count + 1
    from picked, moment
    where node_commands.node_id = picked.node_id
        and node_commands.sequence = picked.sequence
        -- Voided or acknowledged meanwhile: not sent.
        and node_commands.status = picked.status
    returning
        node_commands.node_id, node_commands.sequence, node_commands.command_id,
        node_commands.kind, node_commands.attempt_id, node_commands.payload,
        picked.status = 'PENDING' as is_first
)
select
    sent.node_id, sent.sequence, sent.command_id, sent.kind, sent.payload, sent.is_first,
    case
        when sent.kind = 'RUN' then
            extract(epoch from least(
                greatest(attempts.lease_expires_at - moment.now, interval '0'), $5::interval
            ))::float8
    end as lease_remaining_s
from sent
cross join moment
left join attempts on attempts.attempt_id = sent.attempt_id and sent.kind = 'RUN'
order by sent.node_id, sent.sequence;

-- name: undelivered_nodes
-- purpose: names those of this replica's nodes that have commands to send, or to send again
select given.node_id
from unnest($1::uuid[]) as given (node_id)
where exists (
    select 1
    from node_commands
    where node_commands.node_id = given.node_id
        and (
            node_commands.status = 'PENDING'
            or (
                node_commands.status = 'SENT'
                and node_commands.sent_at <= (select tdp_now()) - $2::interval
            )
        )
);

-- name: ack_commands
-- purpose: notes up to which sequence nodes have stored their commands, and accepts those attempts
-- One row a node; only acks of the current session count.
with given as materialized (
    select acked.node_id, acked.sequence
    from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as acked (node_id, generation, sequence)
    inner join nodes on nodes.node_id = acked.node_id and nodes.generation = acked.generation
),
stored as materialized (
    select node_commands.node_id, node_commands.sequence, node_commands.kind, node_commands.attempt_id
    from node_commands
    inner join given on given.node_id = node_commands.node_id
    where node_commands.status = 'SENT'
        and node_commands.sequence <= given.sequence
),
free as materialized (
    select attempts.attempt_id
    from attempts
    where attempts.attempt_id in (select attempt_id from stored where kind = 'RUN')
        and attempts.status = 'DISPATCHED'
    order by attempts.attempt_id
    for update
),
accepted as (
    update attempts
    set status = 'ACCEPTED', accepted_at = tdp_now()
    from free
    where attempts.attempt_id = free.attempt_id
),
acked as (
    update node_commands
    set status = 'ACKED', acked_at = tdp_now()
    from stored
    where node_commands.node_id = stored.node_id
        and node_commands.sequence = stored.sequence
        and node_commands.status = 'SENT'
    returning node_commands.node_id
),
locked as materialized (
    select nodes.node_id
    from nodes
    inner join given on given.node_id = nodes.node_id
    where nodes.acked_command_sequence < given.sequence
    order by nodes.node_id
    for update of nodes
),
node as (
    update nodes
    set acked_command_sequence = least(
        greatest(nodes.acked_command_sequence, given.sequence), nodes.last_command_sequence
    )
    from given
    inner join locked on locked.node_id = given.node_id
    where nodes.node_id = given.node_id
)
select node_id, count(*)::integer as acked_count
from acked
group by node_id;
