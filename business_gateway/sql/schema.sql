-- The schema that the migrations of business_gateway come to, written by `make schema`.
-- For reading: comments and reasons are in the migrations, and nothing ever runs this file.

CREATE FUNCTION public.keep_order_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    if tg_op = 'UPDATE' and new.version < old.version then
        raise exception 'order % would go back from version % to %',
            new.order_id, old.version, new.version using errcode = 'check_violation';
    end if;
    if tg_op = 'INSERT' or new.version > old.version then
        insert into order_changes (
            order_id, version, kind, event_id, status, platform_status, run, progress_percent,
            diagnosis, occurred_at
        )
        values (
            new.order_id, new.version, new.change_kind, new.change_event_id, new.status,
            new.platform_status, new.run, new.progress_percent, new.diagnosis, new.updated_at
        );
    end if;
    return null;
end
$$;

CREATE FUNCTION public.tdp_now() RETURNS timestamp with time zone
    LANGUAGE sql PARALLEL SAFE
    RETURN (clock_timestamp() + (COALESCE(NULLIF(current_setting('tdp.clock_offset'::text, true), ''::text), '0'::text))::interval);

CREATE TABLE public.artifact_commits (
    attempt_id uuid NOT NULL,
    part integer NOT NULL,
    part_count integer NOT NULL,
    request_sha256 bytea NOT NULL,
    file_count integer NOT NULL,
    committed_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT artifact_commits_check CHECK ((part_count >= part)),
    CONSTRAINT artifact_commits_file_count_check CHECK ((file_count >= 0)),
    CONSTRAINT artifact_commits_part_check CHECK ((part >= 1)),
    CONSTRAINT artifact_commits_request_sha256_check CHECK ((octet_length(request_sha256) = 32))
);

CREATE TABLE public.artifacts (
    artifact_id uuid NOT NULL,
    order_id uuid NOT NULL,
    task_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    step_key text NOT NULL,
    item_index integer DEFAULT '-1'::integer NOT NULL,
    attempt_id uuid NOT NULL,
    boot_id text NOT NULL,
    relative_path text NOT NULL,
    type text NOT NULL,
    media_type text NOT NULL,
    size_bytes_max bigint NOT NULL,
    object_key text NOT NULL,
    state text DEFAULT 'ALLOCATED'::text NOT NULL,
    size_bytes bigint,
    sha256 bytea,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    committed_at timestamp with time zone,
    CONSTRAINT artifacts_check CHECK (((state = 'ALLOCATED'::text) = (sha256 IS NULL))),
    CONSTRAINT artifacts_check1 CHECK (((sha256 IS NULL) = (size_bytes IS NULL))),
    CONSTRAINT artifacts_check2 CHECK (((state = 'COMMITTED'::text) = (committed_at IS NOT NULL))),
    CONSTRAINT artifacts_relative_path_check CHECK ((relative_path <> ''::text)),
    CONSTRAINT artifacts_sha256_check CHECK ((octet_length(sha256) = 32)),
    CONSTRAINT artifacts_size_bytes_check CHECK ((size_bytes >= 0)),
    CONSTRAINT artifacts_size_bytes_max_check CHECK ((size_bytes_max >= 1)),
    CONSTRAINT artifacts_state_check CHECK ((state = ANY (ARRAY['ALLOCATED'::text, 'VERIFIED'::text, 'COMMITTED'::text]))),
    CONSTRAINT artifacts_type_check CHECK (((char_length(type) >= 1) AND (char_length(type) <= 100)))
);

CREATE TABLE public.assets (
    asset_id uuid NOT NULL,
    name text NOT NULL,
    state text DEFAULT 'UPLOADING'::text NOT NULL,
    object_key text NOT NULL,
    media_type text DEFAULT 'application/zip'::text NOT NULL,
    declared_size_bytes bigint,
    declared_sha256 bytea,
    size_bytes bigint,
    sha256 bytea,
    rejection_reason text,
    rejection_message text,
    verifying_until timestamp with time zone,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    decided_at timestamp with time zone,
    CONSTRAINT assets_check CHECK (((state = 'UPLOADING'::text) = (decided_at IS NULL))),
    CONSTRAINT assets_check1 CHECK (((state = 'REJECTED'::text) = (rejection_reason IS NOT NULL))),
    CONSTRAINT assets_check2 CHECK (((state <> 'READY'::text) OR (size_bytes IS NOT NULL))),
    CONSTRAINT assets_declared_sha256_check CHECK ((octet_length(declared_sha256) = 32)),
    CONSTRAINT assets_declared_size_bytes_check CHECK ((declared_size_bytes > 0)),
    CONSTRAINT assets_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 200))),
    CONSTRAINT assets_sha256_check CHECK ((octet_length(sha256) = 32)),
    CONSTRAINT assets_size_bytes_check CHECK ((size_bytes >= 0)),
    CONSTRAINT assets_state_check CHECK ((state = ANY (ARRAY['UPLOADING'::text, 'READY'::text, 'REJECTED'::text])))
);

CREATE TABLE public.callback_inbox (
    event_id uuid NOT NULL,
    order_id uuid NOT NULL,
    task_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    run integer NOT NULL,
    sequence bigint NOT NULL,
    type text NOT NULL,
    platform_status text DEFAULT ''::text NOT NULL,
    progress_percent integer DEFAULT 0 NOT NULL,
    envelope text NOT NULL,
    source text NOT NULL,
    effect text NOT NULL,
    order_version bigint NOT NULL,
    arrivals integer DEFAULT 1 NOT NULL,
    received_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    last_arrival_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT callback_inbox_effect_check CHECK ((effect = ANY (ARRAY['PROJECTED'::text, 'NO_CHANGE'::text, 'HISTORY'::text]))),
    CONSTRAINT callback_inbox_run_check CHECK ((run >= 1)),
    CONSTRAINT callback_inbox_sequence_check CHECK ((sequence >= 1)),
    CONSTRAINT callback_inbox_source_check CHECK ((source = ANY (ARRAY['CALLBACK'::text, 'QUERY'::text]))),
    CONSTRAINT callback_inbox_type_check CHECK ((type <> ''::text))
);

CREATE TABLE public.command_outbox (
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
    kind text NOT NULL,
    order_id uuid NOT NULL,
    CONSTRAINT command_outbox_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT command_outbox_claimed CHECK (((status <> 'PUBLISHING'::text) OR (claim_id IS NOT NULL))),
    CONSTRAINT command_outbox_claims_check CHECK ((claims >= 0)),
    CONSTRAINT command_outbox_destination_check CHECK ((destination <> ''::text)),
    CONSTRAINT command_outbox_kind_check CHECK ((kind = ANY (ARRAY['SUBMIT'::text, 'CANCEL'::text, 'RERUN'::text]))),
    CONSTRAINT command_outbox_published CHECK (((status = 'PUBLISHED'::text) = (published_at IS NOT NULL))),
    CONSTRAINT command_outbox_status_check CHECK ((status = ANY (ARRAY['PENDING'::text, 'PUBLISHING'::text, 'FAILED'::text, 'PUBLISHED'::text, 'DEAD'::text, 'QUARANTINED'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.01');

ALTER TABLE public.command_outbox ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.command_outbox_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.idempotency_records (
    principal text NOT NULL,
    operation text NOT NULL,
    key text NOT NULL,
    request_sha256 bytea NOT NULL,
    order_id uuid NOT NULL,
    answer text NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    CONSTRAINT idempotency_records_key_check CHECK ((key <> ''::text)),
    CONSTRAINT idempotency_records_request_sha256_check CHECK ((octet_length(request_sha256) = 32))
);

CREATE TABLE public.order_changes (
    order_id uuid NOT NULL,
    version bigint NOT NULL,
    kind text NOT NULL,
    event_id uuid,
    status text NOT NULL,
    platform_status text NOT NULL,
    run integer NOT NULL,
    progress_percent integer NOT NULL,
    diagnosis text NOT NULL,
    occurred_at timestamp with time zone NOT NULL
);

CREATE TABLE public.orders (
    order_id uuid NOT NULL,
    name text NOT NULL,
    processing_mode text NOT NULL,
    watermark_text text DEFAULT ''::text NOT NULL,
    source_asset_id uuid NOT NULL,
    status text DEFAULT 'SUBMITTING'::text NOT NULL,
    task_id uuid,
    execution_id uuid,
    run integer DEFAULT 0 NOT NULL,
    last_contiguous_sequence bigint DEFAULT 0 NOT NULL,
    last_projected_sequence bigint DEFAULT 0 NOT NULL,
    platform_status text DEFAULT ''::text NOT NULL,
    status_sequence bigint DEFAULT 0 NOT NULL,
    progress_percent integer DEFAULT 0 NOT NULL,
    diagnosis text DEFAULT ''::text NOT NULL,
    diagnosis_json text,
    output_json text,
    version bigint DEFAULT 1 NOT NULL,
    change_kind text DEFAULT 'CREATED'::text NOT NULL,
    change_event_id uuid,
    cancel_requested_at timestamp with time zone,
    published_at timestamp with time zone,
    quiet_since timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    created_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    updated_at timestamp with time zone DEFAULT public.tdp_now() NOT NULL,
    completed_at timestamp with time zone,
    CONSTRAINT orders_check CHECK ((last_projected_sequence >= last_contiguous_sequence)),
    CONSTRAINT orders_check1 CHECK (((watermark_text = ''::text) = (processing_mode = 'ARCHIVE_CLEAN_ONLY'::text))),
    CONSTRAINT orders_check2 CHECK (((status = ANY (ARRAY['COMPLETED'::text, 'NEEDS_ATTENTION'::text, 'CANCELED'::text])) = (completed_at IS NOT NULL))),
    CONSTRAINT orders_last_contiguous_sequence_check CHECK ((last_contiguous_sequence >= 0)),
    CONSTRAINT orders_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 200))),
    CONSTRAINT orders_processing_mode_check CHECK ((processing_mode = ANY (ARRAY['ARCHIVE_CLEAN_ONLY'::text, 'ARCHIVE_CLEAN_THEN_WATERMARK'::text]))),
    CONSTRAINT orders_progress_percent_check CHECK (((progress_percent >= 0) AND (progress_percent <= 100))),
    CONSTRAINT orders_run_check CHECK ((run >= 0)),
    CONSTRAINT orders_status_check CHECK ((status = ANY (ARRAY['SUBMITTING'::text, 'PROCESSING'::text, 'COMPLETED'::text, 'NEEDS_ATTENTION'::text, 'CANCELING'::text, 'CANCELED'::text]))),
    CONSTRAINT orders_status_sequence_check CHECK ((status_sequence >= 0)),
    CONSTRAINT orders_version_check CHECK ((version >= 1)),
    CONSTRAINT orders_watermark_text_check CHECK ((char_length(watermark_text) <= 100))
);

ALTER TABLE ONLY public.artifact_commits
    ADD CONSTRAINT artifact_commits_pkey PRIMARY KEY (attempt_id, part);

ALTER TABLE ONLY public.artifacts
    ADD CONSTRAINT artifacts_attempt_id_boot_id_relative_path_key UNIQUE (attempt_id, boot_id, relative_path);

ALTER TABLE ONLY public.artifacts
    ADD CONSTRAINT artifacts_object_key_key UNIQUE (object_key);

ALTER TABLE ONLY public.artifacts
    ADD CONSTRAINT artifacts_pkey PRIMARY KEY (artifact_id);

ALTER TABLE ONLY public.assets
    ADD CONSTRAINT assets_object_key_key UNIQUE (object_key);

ALTER TABLE ONLY public.assets
    ADD CONSTRAINT assets_pkey PRIMARY KEY (asset_id);

ALTER TABLE ONLY public.callback_inbox
    ADD CONSTRAINT callback_inbox_pkey PRIMARY KEY (event_id);

ALTER TABLE ONLY public.command_outbox
    ADD CONSTRAINT command_outbox_pkey PRIMARY KEY (outbox_id);

ALTER TABLE ONLY public.idempotency_records
    ADD CONSTRAINT idempotency_records_pkey PRIMARY KEY (principal, operation, key);

ALTER TABLE ONLY public.order_changes
    ADD CONSTRAINT order_changes_pkey PRIMARY KEY (order_id, version);

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (order_id);

CREATE UNIQUE INDEX artifacts_committed ON public.artifacts USING btree (execution_id, step_key, item_index, relative_path) WHERE (state = 'COMMITTED'::text);

CREATE INDEX artifacts_left ON public.artifacts USING btree (created_at) WHERE (state <> 'COMMITTED'::text);

CREATE INDEX artifacts_order ON public.artifacts USING btree (order_id, relative_path, artifact_id) WHERE (state = 'COMMITTED'::text);

CREATE INDEX assets_left ON public.assets USING btree (created_at) WHERE (state = 'UPLOADING'::text);

CREATE INDEX callback_inbox_execution ON public.callback_inbox USING btree (execution_id, sequence);

CREATE INDEX callback_inbox_order ON public.callback_inbox USING btree (order_id, run, sequence);

CREATE INDEX command_outbox_dead ON public.command_outbox USING btree ("position") WHERE (status = ANY (ARRAY['DEAD'::text, 'QUARANTINED'::text]));

CREATE INDEX command_outbox_due ON public.command_outbox USING btree (available_at, created_at) WHERE (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text, 'PUBLISHING'::text]));

CREATE INDEX command_outbox_held ON public.command_outbox USING btree (destination, available_at) WHERE (held AND (status = ANY (ARRAY['PENDING'::text, 'FAILED'::text])));

CREATE INDEX command_outbox_order ON public.command_outbox USING btree (order_id, "position");

CREATE INDEX command_outbox_ordering ON public.command_outbox USING btree (ordering_key, "position") WHERE ((ordering_key IS NOT NULL) AND (status <> 'PUBLISHED'::text) AND (NOT redriven));

CREATE INDEX command_outbox_published ON public.command_outbox USING btree (published_at) WHERE (status = 'PUBLISHED'::text);

CREATE UNIQUE INDEX command_outbox_submit ON public.command_outbox USING btree (order_id) WHERE (kind = 'SUBMIT'::text);

CREATE INDEX idempotency_records_created ON public.idempotency_records USING btree (created_at);

CREATE INDEX orders_by_status ON public.orders USING btree (status, order_id DESC);

CREATE UNIQUE INDEX orders_execution ON public.orders USING btree (execution_id) WHERE (execution_id IS NOT NULL);

CREATE INDEX orders_gaps ON public.orders USING btree (quiet_since) WHERE (last_projected_sequence > last_contiguous_sequence);

CREATE INDEX orders_quiet ON public.orders USING btree (quiet_since) WHERE ((status = ANY (ARRAY['SUBMITTING'::text, 'PROCESSING'::text, 'CANCELING'::text])) AND (task_id IS NOT NULL));

CREATE TRIGGER keep_order_change AFTER INSERT OR UPDATE ON public.orders FOR EACH ROW EXECUTE FUNCTION public.keep_order_change();

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_source_asset_id_fkey FOREIGN KEY (source_asset_id) REFERENCES public.assets(asset_id);
