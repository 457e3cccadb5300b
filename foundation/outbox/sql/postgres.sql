-- name: claim
-- purpose: takes the rows that are due, so that one relay at a time publishes each of them
-- Whether an earlier row blocks one is asked row by row, through the ordering index, and never
-- as a join: with a backlog younger than the statistics a join reads the table once per row. Nor
-- may the inner condition name the open states, or the planner would add the due index to it.
with due as (
    select candidate.outbox_id
    from {{table}} as candidate
    where candidate.status in ('PENDING', 'FAILED', 'PUBLISHING')
      and candidate.available_at <= (select tdp_now())
      and candidate.position <= coalesce(
          (
              select head.position
              from {{table}} as head
              where head.ordering_key = candidate.ordering_key
                and head.status <> 'PUBLISHED'
                and not head.redriven
                and (head.status not in ('DEAD', 'QUARANTINED') or $5::boolean)
              order by head.position
              limit 1
          ),
          candidate.position
      )
    order by candidate.available_at, candidate.created_at, candidate.position
    limit $1::integer
    for update of candidate skip locked
)
update {{table}} as claimed
set status = case when claimed.claims >= $4::integer then 'QUARANTINED' else 'PUBLISHING' end,
    claims = least(claimed.claims + 1, $4::integer),
    claim_id = $2::uuid,
    available_at = tdp_now() + $3::double precision * interval '1 second',
    held = false,
    last_error = case
        when claimed.claims >= $4::integer
        then 'claimed ' || claimed.claims || ' times without an answer; last error: '
            || coalesce(claimed.last_error, 'none')
        else claimed.last_error
    end
from due
where claimed.outbox_id = due.outbox_id
returning claimed.*;

-- name: defer_followers
-- purpose: takes due rows out of the way whose key waits for a failed row, until that one is due
-- The failed row is locked and looked at again, so that a row released meanwhile defers nothing.
with waiting as (
    select follower.outbox_id, failed.available_at
    from {{table}} as follower
    cross join lateral (
        select first.outbox_id, first.position
        from {{table}} as first
        where first.ordering_key = follower.ordering_key
          and first.status <> 'PUBLISHED'
          and not first.redriven
          and (first.status not in ('DEAD', 'QUARANTINED') or $2::boolean)
        order by first.position
        limit 1
    ) as head
    join {{table}} as failed on failed.outbox_id = head.outbox_id
    where follower.status in ('PENDING', 'FAILED')
      and follower.available_at <= (select tdp_now())
      and head.position < follower.position
      and failed.status = 'FAILED'
      and failed.available_at > (select tdp_now())
    order by follower.available_at
    limit $1::integer
    for no key update of follower, failed skip locked
)
update {{table}} as deferred
set available_at = waiting.available_at,
    held = true
from waiting
where deferred.outbox_id = waiting.outbox_id
returning deferred.outbox_id;

-- name: mark
-- purpose: records what publishing came to, where the claim is still held
update {{table}} as marked
set status = mark.status,
    attempts = marked.attempts + mark.attempts_added,
    claims = 0,
    available_at = tdp_now() + mark.due_in_s * interval '1 second',
    published_at = case when mark.status = 'PUBLISHED' then tdp_now() end,
    held = mark.held,
    last_error = coalesce(mark.error, marked.last_error)
from unnest(
    $1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::double precision[], $6::boolean[],
    $7::text[]
) as mark (outbox_id, claim_id, status, attempts_added, due_in_s, held, error)
where marked.outbox_id = mark.outbox_id
  and marked.claim_id = mark.claim_id
  and marked.status = 'PUBLISHING'
returning marked.outbox_id;

-- name: next_due
-- purpose: says how long a relay may sleep
select greatest(extract(epoch from due.available_at - tdp_now()), 0)::double precision
    as due_in_s
from (
    select candidate.available_at
    from {{table}} as candidate
    where candidate.status in ('PENDING', 'FAILED', 'PUBLISHING')
      and candidate.position <= coalesce(
          (
              select head.position
              from {{table}} as head
              where head.ordering_key = candidate.ordering_key
                and head.status <> 'PUBLISHED'
                and not head.redriven
                and (head.status not in ('DEAD', 'QUARANTINED') or $1::boolean)
              order by head.position
              limit 1
          ),
          candidate.position
      )
    order by candidate.available_at
    limit 1
) as due;

-- name: release
-- purpose: makes rows due whose destination answers again or is switched on again
update {{table}}
set available_at = least(available_at, tdp_now()),
    held = false
where destination = $1::text
  and held
  and status in ('PENDING', 'FAILED')
returning outbox_id;

-- name: redrive
-- purpose: lets an operator send dead letters again
update {{table}}
set status = 'PENDING',
    attempts = 0,
    claims = 0,
    held = false,
    redriven = true,
    available_at = tdp_now()
where outbox_id = any ($1::uuid[])
  and status in ('DEAD', 'QUARANTINED')
returning outbox_id;

-- name: depth
-- purpose: counts what is not delivered, for metrics and the console
select count(*) filter (where status = 'PENDING') as pending,
    count(*) filter (where status = 'PUBLISHING') as publishing,
    count(*) filter (where status = 'FAILED') as failed,
    (select count(*) from {{table}} where status = 'DEAD') as dead,
    (select count(*) from {{table}} where status = 'QUARANTINED') as quarantined,
    extract(epoch from tdp_now() - min(created_at))::double precision as oldest_open_age_s
from {{table}}
where status in ('PENDING', 'FAILED', 'PUBLISHING');

-- name: remove_published
-- purpose: keeps history bounded, in bounded batches
-- By an array, not a join: for a limit that it does not know the planner would read all rows.
with old as (
    select outbox_id
    from {{table}}
    where status = 'PUBLISHED'
      and published_at < (select tdp_now()) - $1::double precision * interval '1 second'
    order by published_at
    limit $2::integer
    for update skip locked
)
delete from {{table}} as removed
where removed.outbox_id = any(array(select outbox_id from old))
returning removed.outbox_id;
