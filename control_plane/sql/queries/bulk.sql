-- name: plan_as_usual
-- purpose: ends what plan_for_these_values began, for the rest of the transaction
select set_config('plan_cache_mode', 'auto', true);

-- name: fitting_task_ids
-- purpose: names the tasks that a bulk act comes to next, newest first
select task_id::text
from fitting_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) as fitting
order by fitting.task_id desc
limit $13;

-- name: count_tasks
-- purpose: counts the tasks that a bulk act would come to, up to a bound
select count(*) as found
from (
    select task_id
    from fitting_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    limit $13
) as fitting;
