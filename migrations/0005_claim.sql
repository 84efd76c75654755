-- The gate of claims. Claims pass through it together, before their snapshots; a new rule is committed and then passes
-- through it alone, so that no claim that did not see the rule commits after it. It is a lock on an empty table: the
-- rights on the table say whose sessions can take it, while any session of the database can take an advisory lock.

create table wakeq.claim_gate (
    nothing boolean not null check (false)
);

comment on table wakeq.claim_gate is 'Always empty: claims and new rules lock it';

-- Waits until every claim has ended that may not have seen what was committed before. With the rights of the schema's
-- owner: a role that makes rules need not be able to hold the gate.
create function wakeq.await_claims() returns void language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp set lock_timeout = '4s' as $$
begin
    lock table wakeq.claim_gate in share mode;
end
$$;
