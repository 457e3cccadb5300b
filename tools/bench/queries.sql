-- What the benchmark asks the databases about a run that is over, or nearly.

-- name: make_floor_table
-- purpose: one narrow table for the floor: the least that a durable fact costs
create table floor (
    id bigint generated always as identity primary key,
    payload text not null,
    created_at timestamptz not null default now()
);

-- name: unfinished
-- purpose: what is still under way: live executions, and events not yet told to NATS
select
    (select count(*) from executions where completed_at is null)
        + (select count(*) from outbox_events where status in ('PENDING', 'FAILED', 'PUBLISHING'));

-- name: last_completion
-- purpose: when the last of these executions was finished, by the machine's clock
select max(completed_at) from executions where execution_id = any($1::uuid[]);

-- name: wrong_executions
-- purpose: executions of a run that are not SUCCEEDED with the output that was asked for
select execution_id::text, status
from executions
where execution_id = any($1::uuid[])
    and (status <> 'SUCCEEDED' or output is null)
order by execution_id
limit 10;

-- name: steps_attempted
-- purpose: per execution how many steps succeeded, and how many attempts of any outcome it took
select e.execution_id::text,
    (
        select count(distinct a.step_key) from attempts a
        where a.execution_id = e.execution_id and a.status = 'SUCCEEDED'
    ) as succeeded,
    (select count(*) from attempts a where a.execution_id = e.execution_id) as attempts
from unnest($1::uuid[]) as e (execution_id);

-- name: first_step_times
-- purpose: when the first step of each execution was dispatched and taken by its node
select execution_id::text, dispatched_at, accepted_at
from attempts
where execution_id = any($1::uuid[]) and step_key = 'first' and number = 1;

-- name: show_setting
-- purpose: a setting of the server as it is in force
select current_setting($1);

-- name: log_every_statement
-- purpose: for the idle phase only: makes the server write down what it is asked
alter system set log_statement = 'all';

-- name: log_no_statement
-- purpose: undoes log_every_statement
alter system reset log_statement;

-- name: reload
-- purpose: puts changed settings in force without a restart
select pg_reload_conf();

-- name: flush
-- purpose: writes dirty pages now, so that a phase does not pay for the phase before
checkpoint;
