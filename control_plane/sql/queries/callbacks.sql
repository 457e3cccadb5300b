-- name: callback_target
-- purpose: reads where an execution's events go and what they are signed with
select
    execution.application_id::text, task.callback_url, application.callback_secret,
    application.callback_disabled_at is not null as disabled
from executions as execution
inner join tasks as task using (task_id)
inner join applications as application
    on application.application_id = execution.application_id
where execution.execution_id = $1;

-- name: application_callback
-- purpose: reads what an application's callbacks are signed with, and whether they are off
select callback_secret, callback_disabled_at is not null as disabled
from applications
where application_id = $1;

-- name: disable_callbacks
-- purpose: switches an application's endpoint off until it is set again
update applications
set callback_disabled_at = coalesce(callback_disabled_at, tdp_now())
where application_id = $1;
