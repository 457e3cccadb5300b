"""Tasks with their executions, made by a rule and not by running them, as many as a test wants."""

from datetime import UTC, datetime
from typing import Final

from foundation.postgres.pool import Database

OWNERS: Final = tuple(f"0190aaaa-0000-7000-8000-00000000000{n}" for n in (1, 2))
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
# One task a minute from START: every 1,000th is another's or went wrong, and the last ten are live.
FILL: Final = """
with one as (
    select
        n,
        $2::timestamptz + n * interval '1 minute' as made_at,
        $1 - n < 10 as live,
        lpad(to_hex((extract(epoch from $2) * 1000)::bigint + n * 60000), 12, '0') as millis
    from generate_series(0, $1::integer - 1) as n
),
named as (
    select
        one.*,
        (millis || '70008000' || lpad(n::text, 12, '0'))::uuid as id,
        case when n % 1000 = 7 then $4::uuid else $3::uuid end as owner_id,
        case
            when live then case when n % 2 = 0 then 'QUEUED' else 'RUNNING' end
            when n % 1000 = 3 then 'FAILED'
            when n % 1000 = 5 then 'TIMED_OUT'
            else 'SUCCEEDED'
        end as status
    from one
),
stored as (
    insert into executions (
        execution_id, task_id, application_id, run, status, progress_percent, snapshot_digest,
        created_at, completed_at
    )
    select
        id, id, owner_id, 1, status, case when status = 'SUCCEEDED' then 100 else 0 end, 'd',
        made_at, case when not live then made_at + interval '30 seconds' end
    from named
)
insert into tasks (
    task_id, application_id, name, external_ref, workflow_name, workflow_version, priority, input,
    callback_url, labels, current_execution_id, current_run, created_at
)
select
    id, owner_id, 'task ' || n, 'order-' || n, case when n % 1000 = 9 then 'rare' else 'usual' end,
    '1', 0, '{}', '', case when n % 1000 = 11 then '{"team":"a","tier":"1"}' else '{}' end::jsonb,
    id, 1, made_at
from named
"""


async def fill(database: Database, count: int) -> None:
    """Store so many tasks; task n was made n minutes after START."""
    async with database.acquire() as connection:
        await connection.execute(FILL, count, START, *OWNERS)
        await connection.execute("analyze tasks, executions")
