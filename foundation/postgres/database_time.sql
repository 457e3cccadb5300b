-- The one clock of leases, claims and due times: what the database says, at the moment of asking
-- (not at the start of the transaction). Copy this into the first migration of each database.
--
-- The offset moves time in tests only. It is a setting of the database, so that every process on
-- it sees the same time:  alter database NAME set tdp.clock_offset = '90 seconds';  new
-- connections then use it. Unset, it costs nothing that matters and is zero.
--
-- In a where clause write  available_at <= (select tdp_now())  : evaluated once, it can use an
-- index, which a bare volatile call cannot.
create function tdp_now() returns timestamptz
    language sql volatile parallel safe
    return clock_timestamp()
        + coalesce(nullif(current_setting('tdp.clock_offset', true), ''), '0')::interval;
