-- The statements of the journal; every write of them is part of a larger transaction.

-- name: create_identity
-- purpose: gives a new journal its incarnation, once
insert into identity (only_row, incarnation_id)
values (1, :incarnation_id)
on conflict (only_row) do nothing;

-- name: identity
-- purpose: says whose journal this is, with the marks that outlive a process
select * from identity;

-- name: identify
-- purpose: ties the journal to the enrolled node and the hash of its credential
update identity
set node_id = :node_id,
    credential_sha256 = :credential_sha256;

-- name: mark_drain
-- purpose: remembers over restarts whether the node takes work
update identity
set is_draining = :is_draining,
    drain_grace_s = :grace_s;

-- name: mark_sequence
-- purpose: moves the watermark of stored commands, never back
update identity
set last_command_sequence = max(last_command_sequence, :sequence);

-- name: probe
-- purpose: writes a page and nothing new, so that a file that cannot be written is noticed
update identity
set probe_count = probe_count + 1;

-- name: keep_command
-- purpose: stores a RUN command; one that is there already must not end the agent again and again
insert into inbox (sequence, command_id, kind, attempt_id, document)
values (:sequence, :command_id, :kind, :attempt_id, :document)
on conflict do nothing;

-- name: keep_order
-- purpose: stores an order about an attempt, if it is still held
insert into inbox (sequence, command_id, kind, attempt_id, document)
select :sequence, :command_id, :kind, attempt_id, :document
from attempts
where attempt_id = :attempt_id;

-- name: keep_attempt
-- purpose: stores the attempt that a RUN command gives
insert into attempts (attempt_id, lease_version, sequence, is_started, run_timeout_s)
values (:attempt_id, :lease_version, :sequence, :is_started, :run_timeout_s)
on conflict do nothing;

-- name: stop_attempt
-- purpose: remembers that an attempt was ordered to stop, and why; the first reason counts
update attempts
set stop_reason = coalesce(stop_reason, :stop_reason)
where attempt_id = :attempt_id;

-- name: extend_attempt
-- purpose: moves a run time-out; one without limit stays so
update attempts
set run_timeout_s = run_timeout_s + :extension_s
where attempt_id = :attempt_id
  and run_timeout_s > 0;

-- name: start_attempt
-- purpose: remembers that the work may have begun
update attempts
set is_started = 1
where attempt_id = :attempt_id;

-- name: save_checkpoint
-- purpose: replaces the checkpoint of an attempt that is still held
insert into checkpoints (attempt_id, document)
select attempt_id, :document
from attempts
where attempt_id = :attempt_id and not is_finished
on conflict (attempt_id) do update
set document = excluded.document,
    saved_at = strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now');

-- name: report_artifact
-- purpose: notes a reported path, once, of an attempt that is still held
insert into artifact_paths (attempt_id, relative_path)
select attempt_id, :relative_path
from attempts
where attempt_id = :attempt_id
on conflict do nothing;

-- name: finish_attempt
-- purpose: ends an attempt in the transaction that stores its final event
update attempts
set is_finished = 1
where attempt_id = :attempt_id;

-- name: append_event
-- purpose: puts an event into the outbox
insert into node_events (
    outbox_id, ordering_key, destination, payload, attempt_id, lease_version, boot_id,
    occurred_at, is_final
)
values (
    :outbox_id, :ordering_key, 'control-plane', :payload, :attempt_id, :lease_version, :boot_id,
    :occurred_at, :is_final
);

-- name: forget_attempt
-- purpose: drops an attempt that is no longer ours, with its commands and checkpoint
delete from attempts
where attempt_id = :attempt_id;

-- name: attempts
-- purpose: reads every held attempt with its RUN command and checkpoint, oldest first
select attempts.*, inbox.document as spec, checkpoints.document as checkpoint
from attempts
join inbox on inbox.sequence = attempts.sequence
left join checkpoints on checkpoints.attempt_id = attempts.attempt_id
order by attempts.sequence;

-- name: artifact_paths
-- purpose: reads which artifacts held attempts have reported
select attempt_id, relative_path
from artifact_paths;

-- name: event_count
-- purpose: counts the events that are not acknowledged
select count(*) as event_count
from node_events
where status <> 'PUBLISHED';
