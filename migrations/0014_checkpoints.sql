-- Checkpoints: what an attempt leaves to the next attempt of its event, one JSON value per event.
--
-- Most events have none, so nothing about them is in the event's row, and no statement that ends an
-- event looks here. A checkpoint outlives its event for a while: the worker deletes it if it knows
-- of it, and the hourly expiry deletes what no event has any longer. Until then it counts towards
-- the quota event-bytes of its canvas. A dead event keeps its checkpoint, for a redrive.

create table wakeq.checkpoints (
    canvas_id uuid not null,
    event_id  uuid not null,
    -- The claim that stored it.
    claims    integer not null check (claims > 0),
    value     text not null check (octet_length(value) <= 65536),
    stored_at timestamptz not null default clock_timestamp(),
    -- When the expiry last found its event; at first when the first checkpoint was stored. Later
    -- ones leave it alone, so that they change no index.
    looked_at timestamptz not null default clock_timestamp(),
    constraint checkpoints_pkey primary key (canvas_id, event_id)
) with (
    -- A handler may store one after every page of its work.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

create index checkpoints_looked_at on wakeq.checkpoints (looked_at);

comment on table wakeq.checkpoints is
    'The last checkpoint of an event; one that was stored before its event was emitted belonged to an earlier event';

-- Refuses what is not a claim, and returns its fencing token.
create function wakeq.fence_of(claim text) returns bigint
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if fence_of.claim is null or fence_of.claim !~ '^[0-9a-f]*$' or octet_length(fence_of.claim) not in (16, 40) then
        raise exception 'not the claim of an attempt'
            using
                errcode = 'invalid_parameter_value',
                hint = 'Pass the claim that came with the event (header wakeq-claim), or the lease, unchanged.';
    end if;
    return ('x' || left(fence_of.claim, 16))::bit(64)::bigint;
end
$$;

-- Stores a checkpoint in the caller's transaction, for callers with the same rights as those of
-- wakeq.complete, whose arguments are explained there. The value is JSON.
--
-- If another attempt has begun in the meantime, or the event has ended, this raises, and the
-- transaction has to be rolled back. The event's row is locked until the transaction ends, so that
-- no other attempt begins before the checkpoint is there for it.
create function wakeq.checkpoint(event uuid, claim text, value text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    caller constant name := wakeq.caller();
    is_worker constant boolean := has_table_privilege(caller, 'wakeq.events_v2', 'delete');
    fence constant bigint := wakeq.fence_of(checkpoint.claim);
begin
    if checkpoint.value is null or octet_length(checkpoint.value) > 65536 then
        raise exception 'a checkpoint has at most 65,536 bytes'
            using errcode = 'program_limit_exceeded', hint = 'Store what is large elsewhere, and keep where it is.';
    end if;
    perform checkpoint.value::jsonb;
    with held as (
        select e.canvas_id, e.id, e.claims from wakeq.events_v2 e
         where e.id = checkpoint.event and e.claims::bigint << 32 | e.nonce = fence and e.locked_at is not null
           and (is_worker or wakeq.may_emit(caller, e.canvas_id))
           for no key update
    )
    insert into wakeq.checkpoints as c (canvas_id, event_id, claims, value)
    select h.canvas_id, h.id, h.claims, checkpoint.value from held h
        on conflict (canvas_id, event_id)
        do update set claims = excluded.claims, value = excluded.value, stored_at = excluded.stored_at;
    if not found then
        raise exception 'the claim on the event % does not stand', checkpoint.event
            using
                errcode = 'object_not_in_prerequisite_state',
                hint = 'Stop and roll back: another attempt has begun, or the event has ended.';
    end if;
end
$$;

-- The last checkpoint of an event that an attempt runs, for callers with the same rights; null
-- without one. Raises as wakeq.checkpoint does, and locks nothing.
create function wakeq.last_checkpoint(event uuid, claim text) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    caller constant name := wakeq.caller();
    is_worker constant boolean := has_table_privilege(caller, 'wakeq.events_v2', 'delete');
    fence constant bigint := wakeq.fence_of(last_checkpoint.claim);
    found_value text;
begin
    select c.value into found_value
      from wakeq.events_v2 e
      left join wakeq.checkpoints c
        on c.canvas_id = e.canvas_id and c.event_id = e.id and c.stored_at >= e.enqueued_at
     where e.id = last_checkpoint.event and e.claims::bigint << 32 | e.nonce = fence and e.locked_at is not null
       and (is_worker or wakeq.may_emit(caller, e.canvas_id));
    if not found then
        raise exception 'the claim on the event % does not stand', last_checkpoint.event
            using
                errcode = 'object_not_in_prerequisite_state',
                hint = 'Stop: another attempt has begun, or the event has ended.';
    end if;
    return found_value;
end
$$;

revoke all on all functions in schema wakeq from public;
