-- name: claim
-- purpose: takes the rows that are due, for the one sender of this file
update {{table}}
set status = case when claims >= :claims_max then 'QUARANTINED' else 'PUBLISHING' end,
    claims = min(claims + 1, :claims_max),
    claim_id = :claim_id,
    available_at = :now_s + :claim_ttl_s,
    held = 0,
    last_error = case
        when claims >= :claims_max
        then 'claimed ' || claims || ' times without an answer; last error: '
            || coalesce(last_error, 'none')
        else last_error
    end
where position in (
    select candidate.position
    from {{table}} as candidate
    where candidate.status in ('PENDING', 'FAILED', 'PUBLISHING')
      and candidate.available_at <= :now_s
      and not exists (
          select 1
          from {{table}} as earlier
          where earlier.ordering_key = candidate.ordering_key
            and earlier.position < candidate.position
            and earlier.status <> 'PUBLISHED'
            and not earlier.redriven
            and (earlier.status in ('PENDING', 'FAILED', 'PUBLISHING') or :dead_blocks)
      )
    order by candidate.available_at, candidate.position
    limit :row_limit
)
returning *;

-- name: mark
-- purpose: records what publishing came to, where the claim is still held
update {{table}}
set status = :status,
    attempts = attempts + :attempts_added,
    claims = 0,
    available_at = :now_s + :due_in_s,
    published_at = case when :status = 'PUBLISHED' then :wall_time end,
    held = :held,
    last_error = coalesce(:error, last_error)
where outbox_id = :outbox_id
  and claim_id = :claim_id
  and status = 'PUBLISHING';

-- name: remove_delivered
-- purpose: frees the room of an event that the next owner has; the position watermark stays
delete from {{table}}
where outbox_id = :outbox_id
  and claim_id = :claim_id
  and status = 'PUBLISHING';

-- name: next_due
-- purpose: says how long the sender may sleep
select max(candidate.available_at - :now_s, 0.0) as due_in_s
from {{table}} as candidate
where candidate.status in ('PENDING', 'FAILED', 'PUBLISHING')
  and not exists (
      select 1
      from {{table}} as earlier
      where earlier.ordering_key = candidate.ordering_key
        and earlier.position < candidate.position
        and earlier.status <> 'PUBLISHED'
        and not earlier.redriven
        and (earlier.status in ('PENDING', 'FAILED', 'PUBLISHING') or :dead_blocks)
  )
order by candidate.available_at
limit 1;

-- name: release
-- purpose: makes rows due whose destination answers again
update {{table}}
set available_at = min(available_at, :now_s),
    held = 0
where destination = :destination
  and held
  and status = 'FAILED';

-- name: redrive
-- purpose: sends a row again that was set aside
update {{table}}
set status = 'PENDING',
    attempts = 0,
    claims = 0,
    held = 0,
    redriven = 1,
    available_at = :now_s
where outbox_id = :outbox_id
  and status in ('DEAD', 'QUARANTINED');

-- name: depth
-- purpose: counts what is not delivered
select count(*) filter (where status = 'PENDING') as pending,
    count(*) filter (where status = 'PUBLISHING') as publishing,
    count(*) filter (where status = 'FAILED') as failed,
    count(*) filter (where status = 'DEAD') as dead,
    count(*) filter (where status = 'QUARANTINED') as quarantined,
    min(created_at) filter (where status in ('PENDING', 'FAILED', 'PUBLISHING'))
        as oldest_open_created_at
from {{table}}
where status <> 'PUBLISHED';

-- name: remove_published
-- purpose: keeps history bounded where delivered rows are kept
delete from {{table}}
where position in (
    select position
    from {{table}}
    where status = 'PUBLISHED'
      and published_at < :before
    order by position
    limit :row_limit
);

-- name: recover
-- purpose: makes all open rows due after a restart; their times were another clock's
update {{table}}
set available_at = :now_s
where status in ('PENDING', 'FAILED', 'PUBLISHING');
