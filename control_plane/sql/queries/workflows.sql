-- name: publish_workflow
-- purpose: stores a version unless it is there, with its snapshot, and says whether it is new
with stored as (
    insert into workflows (name, version, digest, definition)
    values ($1, $2, $3, $4)
    on conflict (name, version) do nothing
    returning true
),
frozen as (
    insert into workflow_snapshots (digest, definition)
    select $3, $4 from stored
    on conflict (digest) do nothing
)
select exists (select from stored) as created;

-- name: get_workflow
-- purpose: reads one version with its definition
select name, version, digest, definition, published_at, deprecated_at
from workflows
where name = $1 and version = $2;

-- name: newest_workflow
-- purpose: reads the newest version that is not deprecated, with its definition
select name, version, digest, definition, published_at, deprecated_at
from workflows
where name = $1 and deprecated_at is null
order by published_at desc, version desc
limit 1;

-- name: list_workflows
-- purpose: reads a page of versions without their definitions
select name, version, digest, '' as definition, published_at, deprecated_at
from workflows
where ($1 = '' or name = $1) and (name, version) > ($2, $3)
order by name, version
limit $4;

-- name: deprecate_workflow
-- purpose: keeps a version from new tasks
update workflows
set deprecated_at = coalesce(deprecated_at, tdp_now())
where name = $1 and version = $2
returning name, version, digest, definition, published_at, deprecated_at;

-- name: known_capabilities
-- purpose: lists what nodes have ever declared, for the warnings of a publication
select capability, version from capability_schemas;
