-- name: sealed_secrets
-- purpose: reads the sealed secrets of applications, a page after another; those that have any
select application_id::text, callback_secret, resource_provider_secret
from applications
where
    application_id > $1
    and (callback_secret is not null or resource_provider_secret is not null)
order by applications.application_id
limit $2;

-- name: replace_secret
-- purpose: keeps a secret as it was sealed again, unless it was replaced meanwhile
update applications
set
    callback_secret = case when $2 = 'callback_secret' then $4 else callback_secret end,
    resource_provider_secret
    = case when $2 = 'resource_provider_secret' then $4 else resource_provider_secret end
where
    application_id = $1
    and case
        when $2 = 'callback_secret' then callback_secret else resource_provider_secret
    end = $3::bytea
returning true as replaced;

-- name: live_grants_without
-- purpose: counts the grants that an older key sealed and that still last
select count(*) as found
from grants
where expires_at > tdp_now() and substring(secret from 1 for octet_length($1::bytea)) <> $1;
