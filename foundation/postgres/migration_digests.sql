-- name: make_table
-- purpose: keeps what each applied migration was, for PostgreSQL and SQLite alike
create table if not exists schema_digests (name text primary key, sha256 text not null);

-- name: take_turns
-- purpose: lets one process at a time make the table: two that do at once collide
select pg_advisory_xact_lock(hashtextextended('tdp.schema_digests', 0));

-- name: table_is_there
-- purpose: says whether a PostgreSQL database was migrated by a version that keeps digests
select to_regclass('schema_digests') is not null as found;

-- name: sqlite_table_is_there
-- purpose: says whether a SQLite file was migrated by a version that keeps digests
select count(*) from sqlite_master where type = 'table' and name = 'schema_digests';

-- name: read_digests
-- purpose: reads what the applied migrations were
select name, sha256 from schema_digests;

-- name: keep_digest
-- purpose: notes what an applied migration is, unless that is known
insert into schema_digests (name, sha256) values ($1, $2) on conflict do nothing;
