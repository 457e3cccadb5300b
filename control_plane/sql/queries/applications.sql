-- name: insert_application
-- purpose: registers an application unless its name is taken
insert into applications (
    application_id, name, callback_url, callback_secret,
    resource_provider_url, resource_provider_secret
)
values ($1, $2, $3, $4, $5, $6)
on conflict (name) do nothing
returning true as stored;

-- name: application_of_name
-- purpose: names the application that has a name, for the error about it
select application_id::text from applications where name = $1;

-- name: get_application
-- purpose: reads one application, without its secrets
select
    application_id::text, name, callback_url, callback_disabled_at is not null as callback_disabled,
    resource_provider_url, disabled_at is not null as disabled, created_at
from applications
where application_id = $1;

-- name: list_applications
-- purpose: reads a page of applications by name
select
    application_id::text, name, callback_url, callback_disabled_at is not null as callback_disabled,
    resource_provider_url, disabled_at is not null as disabled, created_at
from applications
where name > $1
order by name
limit $2;

-- name: insert_api_key
-- purpose: registers the hash of an API key unless it is known
insert into api_keys (api_key_id, application_id, operator_name, key_sha256, scopes, expires_at)
values ($1, $2, $3, $4, $5, $6)
on conflict (key_sha256) do nothing
returning true as stored;

-- name: api_key_of_hash
-- purpose: names the key that has a hash, for the error about it
select api_key_id::text from api_keys where key_sha256 = $1;

-- name: revoke_api_key
-- purpose: ends a key at once
update api_keys
set revoked_at = coalesce(revoked_at, tdp_now())
where api_key_id = $1
returning true as found;

-- name: set_callback_endpoint
-- purpose: sets where callbacks go and enables the endpoint; null keeps a value
update applications
set
    callback_url = coalesce($2, callback_url),
    callback_secret = coalesce($3, callback_secret),
    callback_disabled_at = null
where application_id = $1
returning true as found;

-- name: set_resource_provider
-- purpose: sets who issues grants; null keeps a value
update applications
set
    resource_provider_url = coalesce($2, resource_provider_url),
    resource_provider_secret = coalesce($3, resource_provider_secret)
where application_id = $1
returning true as found;

-- name: disable_application
-- purpose: refuses the application's new tasks from now on
update applications
set disabled_at = coalesce(disabled_at, tdp_now())
where application_id = $1
returning true as found;

-- name: key_owner
-- purpose: tells whom a key speaks for, while it is valid
select application_id::text, operator_name, scopes
from api_keys
where
    key_sha256 = $1
    and revoked_at is null
    and (expires_at is null or expires_at > tdp_now());

-- name: node_of_credential
-- purpose: tells which node a credential belongs to
select node_id::text from nodes where credential_sha256 = $1;

-- name: ensure_operator
-- purpose: registers the operator's key that a new installation starts with
insert into api_keys (api_key_id, operator_name, key_sha256, scopes)
values ($1, $2, $3, array['admin', 'submit', 'read'])
on conflict (key_sha256) do nothing;
