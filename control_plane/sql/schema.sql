-- The schema that the migrations of control_plane come to, written by `make schema`.
-- For reading: comments and reasons are in the migrations, and nothing ever runs this file.

CREATE FUNCTION public.tdp_now() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    RETURN (clock_timestamp() + (COALESCE(NULLIF(current_setting('tdp.clock_offset'::text, true), ''::text), '0'::text))::interval);

CREATE TABLE public.executions (
    execution_id uuid NOT NULL,
    task_id uuid NOT NULL,
    application_id uuid NOT NULL,
    run integer NOT NULL,
    status text NOT NULL,
    closing_as text,
    progress_percent integer DEFAULT 0 NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    last_sequence bigint DEFAULT 1 NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    paused_at timestamp with time zone,
    snapshot_digest text NOT NULL,
    output text,
    failure text,
    deadline_at timestamp with time zone,
    next_due_at timestamp with time zone,
    advance_error text,
    advance_failures integer DEFAULT 0 NOT NULL,
    quarantined_at timestamp with time zone,
    progress_event_at timestamp with time zone,
    waits_for text,
    waits_rank double precision,
    waits_because text,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    CONSTRAINT executions_check CHECK (((completed_at IS NOT NULL) = (status = ANY (ARRAY['SUCCEEDED'::text, 'FAILED'::text, 'TIMED_OUT'::text, 'CANCELED'::text])))),
    CONSTRAINT executions_check1 CHECK (((status = 'SUCCEEDED'::text) = (progress_percent = 100))),
    CONSTRAINT executions_closing_as_check CHECK ((closing_as = ANY (ARRAY['FAILED'::text, 'TIMED_OUT'::text]))),
    CONSTRAINT executions_progress_percent_check CHECK (((progress_percent >= 0) AND (progress_percent <= 100))),
    CONSTRAINT executions_run_check CHECK ((run >= 1)),
    CONSTRAINT executions_status_check CHECK ((status = ANY (ARRAY['CREATED'::text, 'QUEUED'::text, 'RUNNING'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'TIMED_OUT'::text, 'CANCELING'::text, 'CANCELED'::text])))
);

CREATE TABLE public.tasks (
    task_id uuid NOT NULL,
    application_id uuid NOT NULL,
    name text NOT NULL,
    external_ref text NOT NULL,
    workflow_name text NOT NULL,
    workflow_version text NOT NULL,
    priority integer NOT NULL,
    input text NOT NULL,
    callback_url text NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    traceparent text DEFAULT ''::text NOT NULL,
    current_execution_id uuid NOT NULL,
    current_run integer NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT tasks_priority_check CHECK (((priority >= '-100'::integer) AND (priority <= 100)))
);

CREATE FUNCTION public.fitting_tasks(owner_id uuid, before_id uuid, from_id uuid, statuses text[], liveness integer, workflows text[], external_refs text[], wanted_labels jsonb, created_from timestamp with time zone, created_before timestamp with time zone, completed_from timestamp with time zone, completed_before timestamp with time zone) RETURNS TABLE(task_id uuid, execution_id uuid, run integer, status text)
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT task.task_id,
     execution.execution_id,
     execution.run,
     execution.status
    FROM (public.tasks task
      JOIN public.executions execution ON (((execution.task_id = task.task_id) AND (execution.run = task.current_run))))
   WHERE (((fitting_tasks.owner_id IS NULL) OR (task.application_id = fitting_tasks.owner_id)) AND ((fitting_tasks.before_id IS NULL) OR (task.task_id < fitting_tasks.before_id)) AND ((fitting_tasks.before_id IS NULL) OR (execution.task_id < fitting_tasks.before_id)) AND ((fitting_tasks.from_id IS NULL) OR (task.task_id >= fitting_tasks.from_id)) AND ((fitting_tasks.from_id IS NULL) OR (execution.task_id >= fitting_tasks.from_id)) AND ((fitting_tasks.statuses IS NULL) OR (execution.status = ANY (fitting_tasks.statuses))) AND ((fitting_tasks.statuses IS NULL) OR (fitting_tasks.owner_id IS NULL) OR (execution.application_id = fitting_tasks.owner_id)) AND ((fitting_tasks.liveness = 0) OR (execution.completed_at IS NULL)) AND ((fitting_tasks.liveness <> 2) OR (execution.quarantined_at IS NOT NULL)) AND ((fitting_tasks.workflows IS NULL) OR (task.workflow_name = ANY (fitting_tasks.workflows))) AND ((fitting_tasks.external_refs IS NULL) OR (task.external_ref = ANY (fitting_tasks.external_refs))) AND ((fitting_tasks.wanted_labels = '{}'::jsonb) OR ((task.labels <> '{}'::jsonb) AND (task.labels @> fitting_tasks.wanted_labels))) AND ((fitting_tasks.created_from IS NULL) OR (task.created_at >= fitting_tasks.created_from)) AND ((fitting_tasks.created_before IS NULL) OR (task.created_at < fitting_tasks.created_before)) AND ((fitting_tasks.completed_from IS NULL) OR (execution.completed_at >= fitting_tasks.completed_from)) AND ((fitting_tasks.completed_before IS NULL) OR (execution.completed_at < fitting_tasks.completed_before)));
END;

CREATE FUNCTION public.id_at(moment timestamp with time zone) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((lpad(to_hex((GREATEST(floor((EXTRACT(epoch FROM moment) * (1000)::numeric)), (0)::numeric))::bigint), 12, '0'::text) || repeat('0'::text, 20)))::uuid;

CREATE FUNCTION public.judged_hold_until(stamped_at timestamp with time zone, hold_until timestamp with time zone, judged_at timestamp with time zone, lease_ttl interval) RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN (((judged_at - stamped_at) > (lease_ttl / (2)::double precision)) OR ((stamped_at - judged_at) > (lease_ttl / (12)::double precision))) THEN (judged_at + lease_ttl) ELSE LEAST(hold_until, (judged_at + lease_ttl)) END;

CREATE FUNCTION public.moment_text(at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (to_char((at AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD HH24:MI:SS'::text) || ' UTC'::text);

CREATE FUNCTION public.node_news_age_s(runtime text, last_seen_at timestamp with time zone, stamped_at timestamp with time zone, judged_at timestamp with time zone, scheduling_ttl_s double precision, lease_ttl_s double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (last_seen_at IS NULL) THEN NULL::double precision WHEN ((runtime <> 'SILENT'::text) AND (((EXTRACT(epoch FROM (judged_at - stamped_at)))::double precision >= ((- scheduling_ttl_s) / (12)::double precision)) AND ((EXTRACT(epoch FROM (judged_at - stamped_at)))::double precision <= scheduling_ttl_s)) AND (((EXTRACT(epoch FROM (judged_at - last_seen_at)))::double precision >= ((- lease_ttl_s) / (12)::double precision)) AND ((EXTRACT(epoch FROM (judged_at - last_seen_at)))::double precision <= lease_ttl_s))) THEN (0.0)::double precision ELSE GREATEST((EXTRACT(epoch FROM (judged_at - stamped_at)))::double precision, (EXTRACT(epoch FROM (judged_at - last_seen_at)))::double precision, (scheduling_ttl_s + (1)::double precision)) END;

CREATE FUNCTION public.sentences_of(reasons text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT string_agg(one.value, ' '::text) AS string_agg FROM json_array_elements_text((sentences_of.reasons)::json) one(value));

CREATE FUNCTION public.shown_now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (statement_timestamp() + (COALESCE(NULLIF(current_setting('tdp.clock_offset'::text, true), ''::text), '0'::text))::interval);

CREATE TABLE public.api_keys (
    api_key_id uuid NOT NULL,
    application_id uuid,
    operator_name text,
    key_sha256 bytea NOT NULL,
    scopes text[] NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT api_keys_check CHECK (((application_id IS NULL) <> (operator_name IS NULL))),
    CONSTRAINT api_keys_key_sha256_check CHECK ((octet_length(key_sha256) = 32)),
    CONSTRAINT api_keys_scopes_check CHECK ((cardinality(scopes) > 0))
);

CREATE TABLE public.applications (
    application_id uuid NOT NULL,
    name text NOT NULL,
    callback_url text DEFAULT ''::text NOT NULL,
    callback_secret bytea,
    callback_disabled_at timestamp with time zone,
    resource_provider_url text DEFAULT ''::text NOT NULL,
    resource_provider_secret bytea,
    disabled_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT applications_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 100)))
);

CREATE TABLE public.artifact_commits (
    outbox_id uuid NOT NULL,
    ordering_key text,
    "position" bigint NOT NULL,
    destination text NOT NULL,
    payload text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    claims integer DEFAULT 0 NOT NULL,
    claim_id uuid,
    available_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    claim_expires_at timestamp with time zone GENERATED ALWAYS AS (
CASE
    WHEN (status = 'PUBLISHING'::text) THEN available_at
    ELSE NULL::timestamp with time zone
END) STORED,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    published_at timestamp with time zone,
    last_error text,
    held boolean DEFAULT false NOT NULL,
    redriven boolean DEFAULT false NOT NULL,
    execution_id uuid NOT NULL,
    application_id uuid NOT NULL,
    CONSTRAINT artifact_commits_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT artifact_commits_claimed CHECK (((status <> 'PUBLISHING'::text) OR (claim_id IS NOT NULL))),
    CONSTRAINT artifact_commits_claims_check CHECK ((claims >= 0)),
    CONSTRAINT artifact_commits_destination_check CHECK ((destination <> ''::text)),
    CONSTRAINT artifact_commits_published CHECK (((status = 'PUBLISHED'::text) = (published_at IS NOT NULL))),
    CONSTRAINT artifact_commits_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'PUBLISHING'::text, 'FAILED'::text, 'PUBLISHED'::text, 'DEAD'::text, 'QUARANTINED'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.01');

ALTER TABLE public.artifact_commits ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.artifact_commits_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.artifacts (
    attempt_id uuid NOT NULL,
    boot_id uuid NOT NULL,
    relative_path text NOT NULL,
    execution_id uuid NOT NULL,
    step_key text NOT NULL,
    item_index integer NOT NULL,
    collection_ref text NOT NULL,
    resource_ref text NOT NULL,
    type text NOT NULL,
    media_type text NOT NULL,
    size_bytes_max bigint NOT NULL,
    status text DEFAULT 'ALLOCATED'::text NOT NULL,
    size_bytes bigint,
    sha256 bytea,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT artifacts_size_bytes_max_check CHECK ((size_bytes_max >= 1)),
    CONSTRAINT artifacts_status_check CHECK ((status = ANY (ARRAY['ALLOCATED'::text, 'REPORTED'::text, 'COMMITTED'::text, 'ABANDONED'::text])))
);

CREATE TABLE public.attempt_inbox (
    event_id uuid NOT NULL,
    node_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    lease_version bigint NOT NULL,
    incarnation_id uuid NOT NULL,
    kind text NOT NULL,
    accepted boolean NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    payload text,
    duplicate_count integer DEFAULT 0 NOT NULL,
    received_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT attempt_inbox_kind_check CHECK ((kind = ANY (ARRAY['ARTIFACTS'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'STOPPED'::text])))
);

CREATE TABLE public.attempts (
    attempt_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    step_key text NOT NULL,
    item_index integer NOT NULL,
    number integer NOT NULL,
    task_id uuid NOT NULL,
    application_id uuid NOT NULL,
    node_id uuid NOT NULL,
    lease_version bigint NOT NULL,
    lease_expires_at timestamp with time zone,
    status text NOT NULL,
    stop_reason text,
    progress_percent integer DEFAULT 0 NOT NULL,
    run_deadline_at timestamp with time zone,
    pending_result text,
    failure text,
    usage text,
    log_tail text,
    reserved_cpu_millis bigint DEFAULT 0 NOT NULL,
    reserved_memory_bytes bigint DEFAULT 0 NOT NULL,
    reserved_disk_bytes bigint DEFAULT 0 NOT NULL,
    reserved_gpu_count integer DEFAULT 0 NOT NULL,
    takes_process_slot boolean DEFAULT false NOT NULL,
    holds_slots boolean DEFAULT false NOT NULL,
    dispatched_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    accepted_at timestamp with time zone,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    CONSTRAINT attempts_lease_version_check CHECK ((lease_version >= 1)),
    CONSTRAINT attempts_number_check CHECK ((number >= 1)),
    CONSTRAINT attempts_progress_percent_check CHECK (((progress_percent >= 0) AND (progress_percent <= 100))),
    CONSTRAINT attempts_status_check CHECK ((status = ANY (ARRAY['DISPATCHED'::text, 'ACCEPTED'::text, 'RUNNING'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'CANCELED'::text, 'TIMED_OUT'::text, 'LOST'::text]))),
    CONSTRAINT attempts_stop_reason_check CHECK ((stop_reason = ANY (ARRAY['CANCEL'::text, 'TIMEOUT'::text, 'DRAIN'::text])))
);

CREATE TABLE public.callback_deliveries (
    outbox_id uuid NOT NULL,
    ordering_key text,
    "position" bigint NOT NULL,
    destination text NOT NULL,
    payload text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    claims integer DEFAULT 0 NOT NULL,
    claim_id uuid,
    available_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    claim_expires_at timestamp with time zone GENERATED ALWAYS AS (
CASE
    WHEN (status = 'PUBLISHING'::text) THEN available_at
    ELSE NULL::timestamp with time zone
END) STORED,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    published_at timestamp with time zone,
    last_error text,
    held boolean DEFAULT false NOT NULL,
    redriven boolean DEFAULT false NOT NULL,
    execution_id uuid NOT NULL,
    sequence bigint NOT NULL,
    application_id uuid NOT NULL,
    CONSTRAINT callback_deliveries_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT callback_deliveries_claimed CHECK (((status <> 'PUBLISHING'::text) OR (claim_id IS NOT NULL))),
    CONSTRAINT callback_deliveries_claims_check CHECK ((claims >= 0)),
    CONSTRAINT callback_deliveries_destination_check CHECK ((destination <> ''::text)),
    CONSTRAINT callback_deliveries_published CHECK (((status = 'PUBLISHED'::text) = (published_at IS NOT NULL))),
    CONSTRAINT callback_deliveries_sequence_check CHECK ((sequence >= 1)),
    CONSTRAINT callback_deliveries_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'PUBLISHING'::text, 'FAILED'::text, 'PUBLISHED'::text, 'DEAD'::text, 'QUARANTINED'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.01');

ALTER TABLE public.callback_deliveries ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.callback_deliveries_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.callback_log (
    entry_id bigint NOT NULL,
    outbox_id uuid NOT NULL,
    kind text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    occurred_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT callback_log_kind_check CHECK ((kind = ANY (ARRAY['failed'::text, 'dead'::text, 'delivered'::text, 'redelivered'::text])))
);

ALTER TABLE public.callback_log ALTER COLUMN entry_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.callback_log_entry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.capability_schemas (
    capability text NOT NULL,
    version text NOT NULL,
    input_schema text NOT NULL,
    output_schema text NOT NULL,
    first_node_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL
);

CREATE TABLE public.execution_events (
    execution_id uuid NOT NULL,
    sequence bigint NOT NULL,
    event_id uuid NOT NULL,
    type text NOT NULL,
    status text NOT NULL,
    progress_percent integer NOT NULL,
    envelope text NOT NULL,
    occurred_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT execution_events_sequence_check CHECK ((sequence >= 1))
);

CREATE TABLE public.grants (
    grant_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    lease_version bigint NOT NULL,
    idempotency_key text NOT NULL,
    resource_ref text NOT NULL,
    method text NOT NULL,
    scope_type text DEFAULT ''::text NOT NULL,
    scope_ref text DEFAULT ''::text NOT NULL,
    secret bytea NOT NULL,
    size_bytes bigint DEFAULT 0 NOT NULL,
    sha256 bytea,
    expires_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT grants_method_check CHECK ((method = ANY (ARRAY['GET'::text, 'PUT'::text])))
);

CREATE TABLE public.idempotency_records (
    principal text NOT NULL,
    operation text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    answer text NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL
);

CREATE TABLE public.join_tokens (
    join_token_id uuid NOT NULL,
    token_sha256 bytea NOT NULL,
    node_group text DEFAULT ''::text NOT NULL,
    use_count integer DEFAULT 0 NOT NULL,
    use_count_max integer DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT join_tokens_token_sha256_check CHECK ((octet_length(token_sha256) = 32))
);

CREATE TABLE public.lease_guard (
    id integer DEFAULT 1 NOT NULL,
    stamped_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    hold_until timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT lease_guard_id_check CHECK ((id = 1))
);

CREATE TABLE public.limit_keys (
    limit_key text NOT NULL,
    slot_count integer NOT NULL,
    touched_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT limit_keys_slot_count_check CHECK ((slot_count >= 1))
);

CREATE TABLE public.limit_slots (
    limit_key text NOT NULL,
    holder_id uuid NOT NULL,
    taken_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    expires_at timestamp with time zone
);

CREATE TABLE public.node_capabilities (
    node_id uuid NOT NULL,
    capability text NOT NULL,
    version text NOT NULL,
    refusal text DEFAULT ''::text NOT NULL,
    inline boolean DEFAULT false NOT NULL
);

CREATE TABLE public.node_commands (
    node_id uuid NOT NULL,
    sequence bigint NOT NULL,
    command_id uuid NOT NULL,
    kind text NOT NULL,
    attempt_id uuid,
    payload text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    send_count integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    sent_at timestamp with time zone,
    acked_at timestamp with time zone,
    CONSTRAINT node_commands_kind_check CHECK ((kind = ANY (ARRAY['RUN'::text, 'CANCEL'::text, 'EXTEND'::text, 'DRAIN'::text, 'UNDRAIN'::text]))),
    CONSTRAINT node_commands_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'SENT'::text, 'ACKED'::text, 'VOIDED'::text])))
);

CREATE TABLE public.nodes (
    node_id uuid NOT NULL,
    name text NOT NULL,
    credential_sha256 bytea NOT NULL,
    node_group text DEFAULT ''::text NOT NULL,
    management text DEFAULT 'ACTIVE'::text NOT NULL,
    runtime text DEFAULT 'SILENT'::text NOT NULL,
    not_ready_reason text DEFAULT ''::text NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    boot_id uuid,
    incarnation_id uuid,
    replica_id uuid,
    agent_version text DEFAULT ''::text NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    weight integer DEFAULT 100 NOT NULL,
    slot_count integer DEFAULT 0 NOT NULL,
    running_count integer DEFAULT 0 NOT NULL,
    process_slot_count integer DEFAULT 0 NOT NULL,
    process_running_count integer DEFAULT 0 NOT NULL,
    cpu_used_millis bigint DEFAULT 0 NOT NULL,
    memory_available_bytes bigint DEFAULT 0 NOT NULL,
    cpu_millis bigint DEFAULT 0 NOT NULL,
    memory_bytes bigint DEFAULT 0 NOT NULL,
    disk_bytes bigint DEFAULT 0 NOT NULL,
    gpu_count integer DEFAULT 0 NOT NULL,
    reserved_cpu_millis bigint DEFAULT 0 NOT NULL,
    reserved_memory_bytes bigint DEFAULT 0 NOT NULL,
    reserved_disk_bytes bigint DEFAULT 0 NOT NULL,
    reserved_gpu_count integer DEFAULT 0 NOT NULL,
    last_command_sequence bigint DEFAULT 0 NOT NULL,
    acked_command_sequence bigint DEFAULT 0 NOT NULL,
    managed_by text DEFAULT ''::text NOT NULL,
    management_reason text DEFAULT ''::text NOT NULL,
    drain_deadline_at timestamp with time zone,
    last_seen_at timestamp with time zone,
    enrolled_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT nodes_credential_sha256_check CHECK ((octet_length(credential_sha256) = 32)),
    CONSTRAINT nodes_management_check CHECK ((management = ANY (ARRAY['ACTIVE'::text, 'CORDONED'::text, 'DRAINING'::text]))),
    CONSTRAINT nodes_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 100))),
    CONSTRAINT nodes_process_running_count_check CHECK ((process_running_count >= 0)),
    CONSTRAINT nodes_running_count_check CHECK ((running_count >= 0)),
    CONSTRAINT nodes_runtime_check CHECK ((runtime = ANY (ARRAY['READY'::text, 'NOT_READY'::text, 'SILENT'::text])))
);

CREATE VIEW public.offered_capabilities AS
 SELECT node_id,
    (json_agg(json_build_array(capability, version, refusal, inline) ORDER BY capability, version))::text AS capabilities
   FROM public.node_capabilities
  GROUP BY node_id;

CREATE TABLE public.outbox_events (
    outbox_id uuid NOT NULL,
    ordering_key text,
    "position" bigint NOT NULL,
    destination text NOT NULL,
    payload text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    claims integer DEFAULT 0 NOT NULL,
    claim_id uuid,
    available_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    claim_expires_at timestamp with time zone GENERATED ALWAYS AS (
CASE
    WHEN (status = 'PUBLISHING'::text) THEN available_at
    ELSE NULL::timestamp with time zone
END) STORED,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    published_at timestamp with time zone,
    last_error text,
    held boolean DEFAULT false NOT NULL,
    redriven boolean DEFAULT false NOT NULL,
    execution_id uuid NOT NULL,
    CONSTRAINT outbox_events_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT outbox_events_claimed CHECK (((status <> 'PUBLISHING'::text) OR (claim_id IS NOT NULL))),
    CONSTRAINT outbox_events_claims_check CHECK ((claims >= 0)),
    CONSTRAINT outbox_events_destination_check CHECK ((destination <> ''::text)),
    CONSTRAINT outbox_events_published CHECK (((status = 'PUBLISHED'::text) = (published_at IS NOT NULL))),
    CONSTRAINT outbox_events_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'PUBLISHING'::text, 'FAILED'::text, 'PUBLISHED'::text, 'DEAD'::text, 'QUARANTINED'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.01');

ALTER TABLE public.outbox_events ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_events_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.replicas (
    replica_id uuid NOT NULL,
    version text NOT NULL,
    started_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    stamped_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL
);

CREATE TABLE public.schedule_runs (
    run_id uuid NOT NULL,
    schedule_id uuid NOT NULL,
    due_at timestamp with time zone NOT NULL,
    triggered boolean NOT NULL,
    status text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    task text NOT NULL,
    task_id uuid,
    live boolean DEFAULT false NOT NULL,
    failure_count integer DEFAULT 0 NOT NULL,
    available_at timestamp with time zone,
    claim_id uuid,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    settled_at timestamp with time zone,
    CONSTRAINT schedule_runs_check CHECK (((available_at IS NULL) = (status <> ALL (ARRAY['PENDING'::text, 'WAITING'::text])))),
    CONSTRAINT schedule_runs_check1 CHECK (((settled_at IS NOT NULL) = (status <> ALL (ARRAY['PENDING'::text, 'WAITING'::text])))),
    CONSTRAINT schedule_runs_check2 CHECK (((task_id IS NOT NULL) = (status = 'STARTED'::text))),
    CONSTRAINT schedule_runs_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'WAITING'::text, 'STARTED'::text, 'SKIPPED'::text, 'MISSED'::text, 'FAILED'::text])))
);

CREATE TABLE public.schedules (
    schedule_id uuid NOT NULL,
    application_id uuid NOT NULL,
    name text NOT NULL,
    cron text NOT NULL,
    time_zone text NOT NULL,
    overlap text NOT NULL,
    catch_up interval NOT NULL,
    task text NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    pause_reason text DEFAULT ''::text NOT NULL,
    paused_by text DEFAULT ''::text NOT NULL,
    next_time timestamp with time zone,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    updated_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT schedules_catch_up_check CHECK ((catch_up > '00:00:00'::interval)),
    CONSTRAINT schedules_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 100))),
    CONSTRAINT schedules_overlap_check CHECK ((overlap = ANY (ARRAY['ALLOW'::text, 'SKIP'::text, 'BUFFER_ONE'::text, 'CANCEL_OTHER'::text])))
);

CREATE TABLE public.scheduling_requests (
    execution_id uuid NOT NULL,
    step_key text NOT NULL,
    item_index integer NOT NULL,
    attempt_number integer NOT NULL,
    application_id uuid NOT NULL,
    priority integer NOT NULL,
    capability text NOT NULL,
    capability_version text NOT NULL,
    requirement text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    available_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    claim_id uuid,
    reasons text,
    never_satisfiable boolean DEFAULT false NOT NULL,
    limits text,
    waits_for text,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    service_rank double precision GENERATED ALWAYS AS (((EXTRACT(epoch FROM (created_at AT TIME ZONE 'UTC'::text)))::double precision - ((6.0 * (priority)::numeric))::double precision)) STORED,
    CONSTRAINT scheduling_requests_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'CLAIMED'::text, 'DISPATCHED'::text, 'VOIDED'::text])))
);

CREATE TABLE public.steps (
    execution_id uuid NOT NULL,
    step_key text NOT NULL,
    item_index integer DEFAULT '-1'::integer NOT NULL,
    "position" integer NOT NULL,
    status text NOT NULL,
    attempt_number integer DEFAULT 0 NOT NULL,
    failure_count integer DEFAULT 0 NOT NULL,
    loss_count integer DEFAULT 0 NOT NULL,
    progress_percent integer DEFAULT 0 NOT NULL,
    capability text DEFAULT ''::text NOT NULL,
    capability_version text DEFAULT ''::text NOT NULL,
    input text,
    output text,
    failure text,
    not_before timestamp with time zone,
    deadline_at timestamp with time zone,
    ready_at timestamp with time zone,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    reused_from_execution_id uuid,
    CONSTRAINT steps_progress_percent_check CHECK (((progress_percent >= 0) AND (progress_percent <= 100))),
    CONSTRAINT steps_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'READY'::text, 'RUNNING'::text, 'WAITING'::text, 'SUCCEEDED'::text, 'FAILED'::text, 'TIMED_OUT'::text, 'CANCELED'::text, 'SKIPPED'::text])))
);

CREATE VIEW public.waiting_steps AS
 SELECT step.execution_id,
    step.step_key,
    step.item_index,
    step.ready_at AS waits_since,
    ((step.status = 'WAITING'::text) OR (step.not_before > public.shown_now()) OR (request.reasons IS NOT NULL)) AS is_explained,
        CASE
            WHEN (step.status = 'WAITING'::text) THEN (((('waits for an answer since '::text || public.moment_text(step.ready_at)) || ': signal it'::text) || COALESCE((' before '::text || public.moment_text(step.deadline_at)), ''::text)) || '.'::text)
            WHEN (step.not_before > public.shown_now()) THEN ((((('waits until '::text || public.moment_text(step.not_before)) || ' for attempt '::text) || step.attempt_number) || COALESCE((', since the one before ended with '::text || ((step.failure)::json ->> 'reason'::text)), ''::text)) || '.'::text)
            WHEN (request.waits_for IS NOT NULL) THEN ((('waits since '::text || public.moment_text(request.created_at)) || ': '::text) || public.sentences_of(request.reasons))
            WHEN (request.reasons IS NOT NULL) THEN ((('waits for a node since '::text || public.moment_text(request.created_at)) || ': '::text) || public.sentences_of(request.reasons))
            ELSE (('waits for the scheduler since '::text || public.moment_text(COALESCE(request.created_at, step.ready_at))) || ': it is next.'::text)
        END AS sentence
   FROM (public.steps step
     LEFT JOIN public.scheduling_requests request ON (((request.execution_id = step.execution_id) AND (request.step_key = step.step_key) AND (request.item_index = step.item_index) AND (request.attempt_number = step.attempt_number) AND (request.status = ANY (ARRAY['PENDING'::text, 'CLAIMED'::text])))))
  WHERE (step.status = ANY (ARRAY['READY'::text, 'WAITING'::text]));

CREATE VIEW public.shown_executions AS
 SELECT execution_id,
    task_id,
    application_id,
    run,
    status,
    COALESCE(closing_as, ''::text) AS closing_as,
    progress_percent,
    version,
    last_sequence,
    paused,
    COALESCE(output, ''::text) AS output,
    COALESCE(failure, ''::text) AS failure,
    created_at,
    started_at,
    completed_at,
        CASE
            WHEN (completed_at IS NOT NULL) THEN ''::text
            WHEN (quarantined_at IS NOT NULL) THEN (((('Set aside after '::text || advance_failures) || ' failed advances: '::text) || COALESCE(advance_error, ''::text)) || ' Resume it to try again.'::text)
            WHEN ((waits_for IS NOT NULL) AND (status = 'CREATED'::text)) THEN ((('Waits since '::text || public.moment_text(created_at)) || ': '::text) || waits_because)
            WHEN paused THEN (('Paused'::text || COALESCE((' since '::text || public.moment_text(paused_at)), ''::text)) || ': resume it.'::text)
            ELSE COALESCE(( SELECT ((('Step '::text || waiting.step_key) || ' '::text) || waiting.sentence)
               FROM public.waiting_steps waiting
              WHERE ((waiting.execution_id = execution.execution_id) AND waiting.is_explained)
              ORDER BY waiting.waits_since
             LIMIT 1), ''::text)
        END AS waiting_for
   FROM public.executions execution;

CREATE TABLE public.timeline (
    entry_id bigint NOT NULL,
    execution_id uuid NOT NULL,
    step_key text DEFAULT ''::text NOT NULL,
    item_index integer DEFAULT '-1'::integer NOT NULL,
    attempt_id uuid,
    type text NOT NULL,
    actor text NOT NULL,
    detail text DEFAULT '{}'::text NOT NULL,
    occurred_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL
);

ALTER TABLE public.timeline ALTER COLUMN entry_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.timeline_entry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.workflow_snapshots (
    digest text NOT NULL,
    definition text NOT NULL
);

CREATE TABLE public.workflows (
    name text NOT NULL,
    version text NOT NULL,
    digest text NOT NULL,
    definition text NOT NULL,
    published_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    deprecated_at timestamp with time zone
);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_key_sha256_key UNIQUE (key_sha256);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (api_key_id);

ALTER TABLE ONLY public.applications
    ADD CONSTRAINT applications_name_key UNIQUE (name);

ALTER TABLE ONLY public.applications
    ADD CONSTRAINT applications_pkey PRIMARY KEY (application_id);

ALTER TABLE ONLY public.artifact_commits
    ADD CONSTRAINT artifact_commits_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY public.artifacts
    ADD CONSTRAINT artifacts_pkey PRIMARY KEY (attempt_id, boot_id, relative_path);

ALTER TABLE ONLY public.attempt_inbox
    ADD CONSTRAINT attempt_inbox_pkey PRIMARY KEY (event_id);

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_execution_id_step_key_item_index_number_key UNIQUE (execution_id, step_key, item_index, number);

ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (attempt_id);

ALTER TABLE ONLY public.callback_deliveries
    ADD CONSTRAINT callback_deliveries_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY public.callback_log
    ADD CONSTRAINT callback_log_pkey PRIMARY KEY (entry_id);

ALTER TABLE ONLY public.capability_schemas
    ADD CONSTRAINT capability_schemas_pkey PRIMARY KEY (capability, version);

ALTER TABLE ONLY public.execution_events
    ADD CONSTRAINT execution_events_pkey PRIMARY KEY (execution_id, sequence);

ALTER TABLE ONLY public.executions
    ADD CONSTRAINT executions_pkey PRIMARY KEY (execution_id);

ALTER TABLE ONLY public.executions
    ADD CONSTRAINT executions_task_id_run_key UNIQUE (task_id, run);

ALTER TABLE ONLY public.grants
    ADD CONSTRAINT grants_pkey PRIMARY KEY (grant_id);

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY (principal, operation, key);

ALTER TABLE ONLY public.join_tokens
    ADD CONSTRAINT join_tokens_pkey PRIMARY KEY (join_token_id);

ALTER TABLE ONLY public.join_tokens
    ADD CONSTRAINT join_tokens_token_sha256_key UNIQUE (token_sha256);

ALTER TABLE ONLY public.lease_guard
    ADD CONSTRAINT lease_guard_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.limit_keys
    ADD CONSTRAINT limit_keys_pkey PRIMARY KEY (limit_key);

ALTER TABLE ONLY public.limit_slots
    ADD CONSTRAINT limit_slots_pkey PRIMARY KEY (limit_key, holder_id);

ALTER TABLE ONLY public.node_capabilities
    ADD CONSTRAINT node_capabilities_pkey PRIMARY KEY (node_id, capability, version);

ALTER TABLE ONLY public.node_commands
    ADD CONSTRAINT node_commands_command_id_key UNIQUE (command_id);

ALTER TABLE ONLY public.node_commands
    ADD CONSTRAINT node_commands_pkey PRIMARY KEY (node_id, sequence);

ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_credential_sha256_key UNIQUE (credential_sha256);

ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_name_key UNIQUE (name);

ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (node_id);

ALTER TABLE ONLY public.outbox_events
    ADD CONSTRAINT outbox_events_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY public.replicas
    ADD CONSTRAINT replicas_pkey PRIMARY KEY (replica_id);

ALTER TABLE ONLY public.schedule_runs
    ADD CONSTRAINT schedule_runs_pkey PRIMARY KEY (run_id);

ALTER TABLE ONLY public.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (schedule_id);

ALTER TABLE ONLY public.scheduling_requests
    ADD CONSTRAINT scheduling_requests_pkey PRIMARY KEY (execution_id, step_key, item_index, attempt_number);

ALTER TABLE ONLY public.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (execution_id, step_key, item_index);

ALTER TABLE ONLY public.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY public.timeline
    ADD CONSTRAINT timeline_pkey PRIMARY KEY (execution_id, entry_id);

ALTER TABLE ONLY public.workflow_snapshots
    ADD CONSTRAINT workflow_snapshots_pkey PRIMARY KEY (digest);

ALTER TABLE ONLY public.workflows
    ADD CONSTRAINT workflows_pkey PRIMARY KEY (name, version);

CREATE INDEX artifact_commits_dead ON public.artifact_commits USING btree ("position") WHERE (status = ANY (ARRAY['DEAD'::text, 'QUARANTINED'::text]));

CREATE INDEX artifact_commits_due ON public.artifact_commits USING btree (available_at, created_at) WHERE (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text, 'PUBLISHING'::text]));

CREATE INDEX artifact_commits_held ON public.artifact_commits USING btree (destination, available_at) WHERE (held AND (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text])));

CREATE INDEX artifact_commits_ordering ON public.artifact_commits USING btree (ordering_key, "position") WHERE ((ordering_key IS NOT NULL) AND (status <> 'PUBLISHED'::text) AND (NOT redriven));

CREATE INDEX artifact_commits_published ON public.artifact_commits USING btree (published_at) WHERE (status = 'PUBLISHED'::text);

CREATE INDEX artifacts_left ON public.artifacts USING btree (created_at) WHERE (status <> 'COMMITTED'::text);

CREATE UNIQUE INDEX artifacts_one_committed ON public.artifacts USING btree (execution_id, step_key, item_index, relative_path) WHERE (status = 'COMMITTED'::text);

CREATE INDEX artifacts_resource ON public.artifacts USING btree (execution_id, resource_ref);

CREATE INDEX attempt_inbox_attempt ON public.attempt_inbox USING btree (attempt_id);

CREATE INDEX attempts_lease ON public.attempts USING btree (lease_expires_at) WHERE (lease_expires_at IS NOT NULL);

CREATE INDEX attempts_node ON public.attempts USING btree (node_id) WHERE (status = ANY (ARRAY['DISPATCHED'::text, 'ACCEPTED'::text, 'RUNNING'::text]));

CREATE UNIQUE INDEX attempts_one_success ON public.attempts USING btree (execution_id, step_key, item_index) WHERE (status = 'SUCCEEDED'::text);

CREATE INDEX attempts_run_deadline ON public.attempts USING btree (run_deadline_at) WHERE ((run_deadline_at IS NOT NULL) AND (stop_reason IS NULL) AND (status = ANY (ARRAY['DISPATCHED'::text, 'ACCEPTED'::text, 'RUNNING'::text])));

CREATE INDEX callback_deliveries_application_dead ON public.callback_deliveries USING btree (application_id, "position") WHERE (status = ANY (ARRAY['DEAD'::text, 'QUARANTINED'::text]));

CREATE INDEX callback_deliveries_dead ON public.callback_deliveries USING btree ("position") WHERE (status = ANY (ARRAY['DEAD'::text, 'QUARANTINED'::text]));

CREATE INDEX callback_deliveries_due ON public.callback_deliveries USING btree (available_at, created_at) WHERE (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text, 'PUBLISHING'::text]));

CREATE INDEX callback_deliveries_execution ON public.callback_deliveries USING btree (execution_id, sequence);

CREATE INDEX callback_deliveries_held ON public.callback_deliveries USING btree (destination, available_at) WHERE (held AND (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text])));

CREATE INDEX callback_deliveries_ordering ON public.callback_deliveries USING btree (ordering_key, "position") WHERE ((ordering_key IS NOT NULL) AND (status <> 'PUBLISHED'::text) AND (NOT redriven));

CREATE INDEX callback_deliveries_published ON public.callback_deliveries USING btree (published_at) WHERE (status = 'PUBLISHED'::text);

CREATE INDEX callback_log_delivery ON public.callback_log USING btree (outbox_id, entry_id);

CREATE INDEX executions_completed ON public.executions USING btree (completed_at) WHERE (completed_at IS NOT NULL);

CREATE INDEX executions_due ON public.executions USING btree (next_due_at) WHERE ((next_due_at IS NOT NULL) AND (completed_at IS NULL));

CREATE INDEX executions_limited ON public.executions USING btree (waits_for, waits_rank) WHERE ((waits_for IS NOT NULL) AND (status = 'CREATED'::text));

CREATE INDEX executions_live ON public.executions USING btree (created_at) WHERE (completed_at IS NULL);

CREATE INDEX executions_not_succeeded ON public.executions USING btree (task_id DESC, application_id, status) WHERE (status <> 'SUCCEEDED'::text);

CREATE INDEX executions_quarantined ON public.executions USING btree (task_id) WHERE ((completed_at IS NULL) AND (quarantined_at IS NOT NULL));

CREATE INDEX executions_queued ON public.executions USING btree (application_id) WHERE (status = ANY (ARRAY['CREATED'::text, 'QUEUED'::text]));

CREATE INDEX grants_attempt ON public.grants USING btree (attempt_id, idempotency_key);

CREATE INDEX idempotency_records_created ON public.idempotency_records USING btree (created_at);

CREATE INDEX limit_slots_expiry ON public.limit_slots USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX limit_slots_holder ON public.limit_slots USING btree (holder_id) WHERE (expires_at IS NULL);

CREATE INDEX node_commands_attempt ON public.node_commands USING btree (attempt_id) WHERE (attempt_id IS NOT NULL);

CREATE INDEX node_commands_open ON public.node_commands USING btree (node_id, sequence) WHERE (status = ANY (ARRAY['PENDING'::text, 'SENT'::text]));

CREATE INDEX outbox_events_dead ON public.outbox_events USING btree ("position") WHERE (status = ANY (ARRAY['DEAD'::text, 'QUARANTINED'::text]));

CREATE INDEX outbox_events_due ON public.outbox_events USING btree (available_at, created_at) WHERE (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text, 'PUBLISHING'::text]));

CREATE INDEX outbox_events_execution ON public.outbox_events USING btree (execution_id);

CREATE INDEX outbox_events_held ON public.outbox_events USING btree (destination, available_at) WHERE (held AND (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text])));

CREATE INDEX outbox_events_ordering ON public.outbox_events USING btree (ordering_key, "position") WHERE ((ordering_key IS NOT NULL) AND (status <> 'PUBLISHED'::text) AND (NOT redriven));

CREATE INDEX outbox_events_published ON public.outbox_events USING btree (published_at) WHERE (status = 'PUBLISHED'::text);

CREATE UNIQUE INDEX schedule_runs_due_once ON public.schedule_runs USING btree (schedule_id, due_at) WHERE (NOT triggered);

CREATE INDEX schedule_runs_live ON public.schedule_runs USING btree (schedule_id) WHERE (live OR (available_at IS NOT NULL));

CREATE INDEX schedule_runs_newest ON public.schedule_runs USING btree (schedule_id, due_at DESC, run_id DESC);

CREATE INDEX schedule_runs_open ON public.schedule_runs USING btree (available_at) WHERE (available_at IS NOT NULL);

CREATE INDEX schedules_due ON public.schedules USING btree (next_time) WHERE (next_time IS NOT NULL);

CREATE UNIQUE INDEX schedules_name ON public.schedules USING btree (application_id, name) WHERE (deleted_at IS NULL);

CREATE INDEX schedules_newest ON public.schedules USING btree (application_id, schedule_id DESC) WHERE (deleted_at IS NULL);

CREATE INDEX scheduling_requests_due ON public.scheduling_requests USING btree (available_at) WHERE (status = ANY (ARRAY['PENDING'::text, 'CLAIMED'::text]));

CREATE INDEX scheduling_requests_limited ON public.scheduling_requests USING btree (waits_for, service_rank) WHERE ((status = 'PENDING'::text) AND (waits_for IS NOT NULL));

CREATE INDEX scheduling_requests_never ON public.scheduling_requests USING btree (created_at) WHERE ((status = 'PENDING'::text) AND never_satisfiable);

CREATE INDEX scheduling_requests_parked ON public.scheduling_requests USING btree (capability, capability_version, application_id, service_rank) WHERE ((status = 'PENDING'::text) AND (reasons IS NOT NULL) AND (waits_for IS NULL));

CREATE INDEX tasks_external_ref ON public.tasks USING btree (external_ref, task_id DESC) WHERE (external_ref <> ''::text);

CREATE INDEX tasks_labels ON public.tasks USING gin (labels jsonb_path_ops) WHERE (labels <> '{}'::jsonb);

CREATE INDEX tasks_newest ON public.tasks USING btree (application_id, task_id DESC);

CREATE INDEX tasks_workflow ON public.tasks USING btree (workflow_name, task_id DESC);

CREATE INDEX workflows_newest ON public.workflows USING btree (name, published_at DESC, version DESC) WHERE (deprecated_at IS NULL);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_application_id_fkey FOREIGN KEY (application_id) REFERENCES public.applications(application_id);

ALTER TABLE ONLY public.callback_log
    ADD CONSTRAINT callback_log_outbox_id_fkey FOREIGN KEY (outbox_id) REFERENCES public.callback_deliveries(outbox_id) ON DELETE CASCADE;

ALTER TABLE ONLY public.node_capabilities
    ADD CONSTRAINT node_capabilities_node_id_fkey FOREIGN KEY (node_id) REFERENCES public.nodes(node_id) ON DELETE CASCADE;

ALTER TABLE ONLY public.schedule_runs
    ADD CONSTRAINT schedule_runs_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES public.schedules(schedule_id);

ALTER TABLE ONLY public.schedules
    ADD CONSTRAINT schedules_application_id_fkey FOREIGN KEY (application_id) REFERENCES public.applications(application_id);
