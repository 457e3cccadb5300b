-- What the gauges are read from: counts of what is open, each through an index.

-- name: open_orders
-- purpose: counts the orders that are not over, and those that wait for a person
select status, count(*) as order_count
from orders
where status in ('SUBMITTING', 'PROCESSING', 'CANCELING', 'NEEDS_ATTENTION')
group by status;

-- name: order_health
-- purpose: counts gaps, and says for how long the quietest order was not heard of
select
    (
        select count(*) from orders where last_projected_sequence > last_contiguous_sequence
    ) as gap_count,
    coalesce((
        select extract(epoch from tdp_now() - min(quiet_since))
        from orders
        where status in ('SUBMITTING', 'PROCESSING', 'CANCELING') and task_id is not null
    ), 0)::float8 as quiet_s_max;
