-- Pulled handlers: handlers whose events programs in any language lease over HTTP.
--
-- The row says that a handler of a canvas is served in this way, and how its events are tried
-- again. A lease is a claim (0001) like a worker's, with a length of its own, and its token is that
-- of a pulled queue (0004). No event is marked for it, and none is written when a handler is
-- registered: a lease finds the events that are due by the index of handlers, under its canvas,
-- module and name.
--
-- Programs may say their names when they lease. `programs` has those that did so lately. Nothing
-- decides by these rows: they are for people, and losing one loses nothing.

create table wakeq.pulled_handlers (
    canvas_id    uuid not null,
    module       wakeq.name not null,
    name         wakeq.name not null,
    retries      integer not null check (retries between 0 and 1000),
    delay_ms     bigint not null check (delay_ms between 0 and 2592000000),
    factor       integer not null check (factor between 1 and 100),
    delay_max_ms bigint not null check (delay_max_ms between 0 and 2592000000),
    -- An event that dies halts the lane of its object.
    halts        boolean not null,
    -- For how long its events are kept after they have ended. Null: not at all.
    keep_s       wakeq.keep_times,
    -- The tokens of leases are made with it, so that nobody can guess one. 244 random bits.
    lease_secret bytea not null check (length(lease_secret) = 32)
                 default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    created_at   timestamptz not null default now(),
    created_by   text not null check (length(created_by) between 1 and 200),
    updated_at   timestamptz not null default now(),
    updated_by   text not null check (length(updated_by) between 1 and 200),
    constraint pulled_handlers_pkey primary key (canvas_id, module, name),
    constraint pulled_handlers_delays check (delay_ms <= delay_max_ms)
);

comment on table wakeq.pulled_handlers is
    'Handlers whose events are leased over HTTP: no worker claims them, and no target gets them';

create table wakeq.programs (
    canvas_id uuid not null,
    module    wakeq.name not null,
    name      wakeq.name not null,
    -- The name that the program gives itself: any it likes, so it proves nothing.
    worker    wakeq.name not null,
    -- Since when it has been seen without a pause of more than five minutes.
    since     timestamptz not null default now(),
    -- Written once a minute by each process of the API that it asks.
    seen_at   timestamptz not null default now(),
    constraint programs_pkey primary key (canvas_id, module, name, worker)
) with (
    -- No index mentions what is written.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

comment on table wakeq.programs is 'Programs that leased events of a pulled handler lately, by the names they gave';

-- Whether a handler's events are leased over HTTP.
create function wakeq.is_pulled_handler(canvas uuid, module text, name text)
returns boolean language plpgsql stable as $$
begin
    return exists (select from wakeq.pulled_handlers p
                    where p.canvas_id = is_pulled_handler.canvas and p.module = is_pulled_handler.module
                      and p.name = is_pulled_handler.name);
end
$$;

-- Whether a rule holds a handler, or its whole canvas, now.
create function wakeq.is_held_handler(canvas uuid, module text, name text)
returns boolean language plpgsql stable as $$
begin
    return exists (select from wakeq.scheduling_rules r
                    where r.canvas_id = is_held_handler.canvas and r.event_space = is_held_handler.module
                      and r.handler_name = is_held_handler.name
                      and (r.until is null or r.until > clock_timestamp()))
        or exists (select from wakeq.scheduling_rules where event_space = 'CANVAS')
           and wakeq.switch_on(canvas, null, clock_timestamp()) is not null;
end
$$;

-- What a lease looks at: 1,000 events of a handler that are due, from this place on, in the order
-- of their due times and ids. Returns those that are on no object, and for the objects of the
-- others the first event of each, wherever that is. So what waits behind one object does not hide
-- it.
-- Also returns the place of the next event; no id if there is none.
create function wakeq.look_at(
    of_canvas uuid, of_module text, of_name text, after timestamptz, after_id uuid,
    out ids uuid[], out until timestamptz, out until_id uuid)
language plpgsql stable as $$
begin
    with looked as materialized (
        select e.id, e.object, e.queue, e.delay_until, row_number() over (order by e.delay_until, e.id) as number
          from (select o.* from wakeq.events_v2 o
                 where o.canvas_id = of_canvas and o.module = of_module and o.name = of_name
                   and o.delay_until > '-infinity' and (o.delay_until, o.id) >= (after, after_id)
                   and o.delay_until <= clock_timestamp()
                 order by o.delay_until, o.id limit 1001) as e
    ), lanes as (
        select distinct l.object from looked l where l.object is not null and l.queue is null and l.number <= 1000
    )
    select array(select l.id from looked l where l.object is null and l.queue is null and l.number <= 1000
                  union all
                 select f.id from lanes cross join lateral (
                        select e.id from wakeq.events_v2 e
                         where e.canvas_id = of_canvas and e.object = lanes.object and e.module = of_module
                           and e.name = of_name and e.queue is null
                         order by e.seq limit 1) as f),
           (select l.delay_until from looked l where l.number = 1001),
           (select l.id from looked l where l.number = 1001)
      into ids, until, until_id;
end
$$;

-- An id at random, from this one to the last of the events of its handler that are due at the same
-- time; null if it is the last one.
create function wakeq.some_later_id(of_canvas uuid, of_module text, of_name text, due timestamptz, from_id uuid)
returns uuid language plpgsql volatile as $$
declare
    last_id uuid;
    lowest  bigint;
    highest bigint;
begin
    select e.id into last_id from wakeq.events_v2 e
     where e.canvas_id = of_canvas and e.delay_until = due and e.module = of_module and e.name = of_name
       and e.delay_until > '-infinity'
     order by e.delay_until desc, e.id desc limit 1;
    if last_id is null or last_id <= from_id then
        return null;
    end if;
    -- Their first 60 bits.
    lowest := ('x0' || left(encode(uuid_send(from_id), 'hex'), 15))::bit(64)::bigint;
    highest := ('x0' || left(encode(uuid_send(last_id), 'hex'), 15))::bit(64)::bigint;
    return rpad(lpad(to_hex(lowest + floor(random() * (highest - lowest))::bigint), 15, '0'), 32, '0')::uuid;
end
$$;

-- Which of the events that a lease looks at may run now. They were found on its canvas. Whether
-- they are the first of their lanes is looked up again, since a redrive may have put another one
-- before them meanwhile.
create function wakeq.leasable_of(looked uuid[], lease interval)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select e.id from wakeq.events_v2 e
     where e.id = any (looked) and e.delay_until <= clock_timestamp()
       and e.queue is null and e.cancelled_by is null
       and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
       and (e.object is null or not exists (
               select from wakeq.events_v2 before
                where before.canvas_id = e.canvas_id and before.object = e.object and before.module = e.module
                  and before.name = e.name and before.queue is null and before.seq < e.seq)
           and not exists (
               select from wakeq.halted_lanes h
                where h.canvas_id = e.canvas_id and h.object = e.object and h.module = e.module
                  and h.name = e.name and h.queue is null offset 0));
end
$$;

-- Locks those, in the order of their due times, without waiting for events that other sessions have
-- locked.
create function wakeq.lock_leasable(looked uuid[], wanted integer, lease interval)
returns uuid[] language plpgsql volatile as $$
begin
    return array(
        select e.id from wakeq.events_v2 e
         where e.id = any (array(select wakeq.leasable_of(looked, lease)))
           and e.cancelled_by is null and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
           and e.delay_until <= clock_timestamp()
         order by e.delay_until, e.id limit wanted for update of e skip locked);
end
$$;

-- The first of those that their limits let start now, as for a worker (`wakeq.admit`). The others
-- wait, and a lease passes over them while there is no room. One that its limit drops is cancelled,
-- and the minute's pass removes it. Null if it has asked limits for nothing: their order allows to
-- lock some once in a transaction, so the caller may ask no further. `room` names limits, as canvas
-- and name, that have room for which others wait. `cancels`: running events may have been
-- cancelled.
create function wakeq.lease_limited(
    looked uuid[], wanted integer, lease interval, bytes_max bigint,
    out ids uuid[], out room text[], out cancels boolean)
language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
declare
    in_line constant uuid[] := wakeq.stand_in_line(looked, lease);
    asked   wakeq.candidate[];
    asks    wakeq.limited_ask[];
    uses    wakeq.limit_use[];
begin
    asked := array(
        select row(e.id, e.xmin)::wakeq.candidate from wakeq.events_v2 e
         where e.id = any (array(select wakeq.leasable_of(looked, lease))) and e.id <> all (in_line)
         order by e.delay_until, e.id limit least(1000, greatest(100, 4 * wanted)));
    if asked = '{}' then
        ids := '{}';
        return;
    end if;
    select d.asks, d.uses into asks, uses
      from wakeq.admit(asked, wanted, bytes_max, lease, wakeq.duration_of('horizon', interval '10 minutes'),
                       wakeq.duration_of('grace', interval '30 seconds')) as d;
    update wakeq.events_v2 e
       set cancelled_by = (select a.dropped_by from unnest(asks) as a where a.id = e.id)
     where e.id = any (array(select a.id from unnest(asks) as a where a.dropped_by is not null));
    ids := nullif(array(
        select a.id from unnest(asks) with ordinality as a
         where a.verdict = 'claimed' and a.dropped_by is null order by a.ordinality), '{}');
    room := array(select u.canvas_id || '/' || u.name from unnest(uses) as u where u.has_room);
    cancels := exists (
        select from unnest(asks) as a where a.verdict = 'full' and uses[a.full_limit].on_full = 'cancel');
end
$$;

-- Whether a handler seems to have an event that can be leased now: among the first 1,000 that are
-- due, or among as many from a place behind them on. Returns from where on a lease finds it, unless
-- it is among the first, or where the next look goes on. No place: at the first ones again.
create function wakeq.has_leasable(
    of_canvas uuid, of_module text, of_name text, lease interval, after timestamptz, after_id uuid,
    out has boolean, out place timestamptz, out place_id uuid)
language plpgsql stable as $$
declare
    seen    record;
    in_line uuid[];
begin
    has := false;
    if wakeq.is_held_handler(of_canvas, of_module, of_name) then
        return;
    end if;
    for nth in 1..2 loop
        seen := wakeq.look_at(of_canvas, of_module, of_name, coalesce(place, '-infinity'),
                              coalesce(place_id, '00000000-0000-0000-0000-000000000000'));
        in_line := wakeq.stand_in_line(seen.ids, lease);
        has := exists (select from wakeq.leasable_of(seen.ids, lease) as e (id) where e.id <> all (in_line));
        exit when has;
        place := seen.until;
        place_id := seen.until_id;
        exit when place_id is null;
        if nth = 1 and (after, after_id) > (place, place_id) then
            place := after;
            place_id := after_id;
        end if;
    end loop;
end
$$;

-- The first of these events, whose values together have at most this many bytes; at least one.
create function wakeq.fit_events(ids uuid[], bytes_max bigint) returns uuid[] language plpgsql stable as $$
begin
    return array(
        select f.id
          from (select o.id, o.number, sum(octet_length(e.value)) over (order by o.number) as bytes
                  from unnest(ids) with ordinality as o (id, number)
                  join wakeq.events_v2 e on e.id = o.id) as f
         where f.number = 1 or f.bytes <= bytes_max
         order by f.number);
end
$$;

-- Locks those events that a lease takes; null if it may look at no others (`lease_limited`). Where
-- nobody has defined a limit, none is looked up.
create function wakeq.choose_leasable(
    looked uuid[], wanted integer, lease interval, bytes_max bigint,
    out ids uuid[], out room text[], out cancels boolean)
language plpgsql volatile as $$
begin
    if exists (select from wakeq.limits) then
        select l.ids, l.room, l.cancels into ids, room, cancels
          from wakeq.lease_limited(looked, wanted, lease, bytes_max) as l;
    else
        ids := wakeq.fit_events(wakeq.lock_leasable(looked, wanted, lease), bytes_max);
    end if;
end
$$;

-- Leases events of a pulled handler: at most `wanted`, with at most `bytes_max` bytes of values or
-- a single one, for `held_for`. It runs with the rights of the schema's owner, so that the role of
-- the API can claim events of pulled handlers, and of no others.
--
-- The gate is locked before the statements that look for rules, so these see every rule whose maker
-- has passed it. A lease looks at the first 1,000 events that are due. Where they and the first
-- ones of their objects are in other hands, it looks at as many from the place that the caller
-- names, or else from one chosen at random, so that none stays out of sight: a time, or an id among
-- those that are due at the same time. It never looks at more, since whoever makes a rule waits for
-- it at the gate.
--
-- `leased_at` is where the attempt begins, for the history: extensions move `locked_at`. A program
-- that has a name passes it as `by_worker`.
--
-- A row without a token is of no event. With the module 'room', its name is that of a limit, after
-- its canvas, for which `wake_waiting` has to be called. With the module 'cancels', running events
-- may have been cancelled to make room.
create function wakeq.lease_events(
    of_canvas uuid, of_module text, of_name text, wanted integer, held_for interval, lease interval, bytes_max bigint,
    place timestamptz default null, place_id uuid default null, by_worker text default null)
returns table (
    id uuid, canvas_id uuid, module text, name text, modifier text, value text, retries integer,
    delay_until timestamptz, enqueued_at timestamptz, locked_at timestamptz, claims integer, nonce integer,
    losses integer, postponed_since timestamptz, took_over boolean, traceparent text, object text, seq bigint,
    prev bigint, options text, token text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    secret  bytea;
    seen    record;
    after   timestamptz := '-infinity';
    from_id uuid := '00000000-0000-0000-0000-000000000000';
    chosen  uuid[];
    room    text[];
    cancels boolean;
begin
    lock table wakeq.claim_gate in row exclusive mode;
    select p.lease_secret into secret from wakeq.pulled_handlers p
     where p.canvas_id = of_canvas and p.module = of_module and p.name = of_name;
    if secret is null or wakeq.is_held_handler(of_canvas, of_module, of_name) then
        return;
    end if;
    seen := wakeq.look_at(of_canvas, of_module, of_name, after, from_id);
    select c.ids, c.room, c.cancels into chosen, room, cancels
      from wakeq.choose_leasable(seen.ids, wanted, lease, bytes_max) as c;
    if chosen = '{}' and seen.until_id is not null then
        after := coalesce(place, seen.until);
        from_id := coalesce(place_id, case when random() < 0.5
            then wakeq.some_later_id(of_canvas, of_module, of_name, seen.until, seen.until_id) end);
        if from_id is null then
            after := seen.until + random() * (clock_timestamp() - seen.until);
            from_id := '00000000-0000-0000-0000-000000000000';
        end if;
        seen := wakeq.look_at(of_canvas, of_module, of_name, after, from_id);
        select c.ids, c.room, c.cancels into chosen, room, cancels
          from wakeq.choose_leasable(seen.ids, wanted, lease, bytes_max) as c;
    end if;
    return query
    select gen_random_uuid(), of_canvas, r.kind, r.counted, ''::text, null::text, 0, now(), now(), now(), 0, 0, 0,
           null::timestamptz, false, null::text, null::text, null::bigint, null::bigint, null::text, null::text
      from (select 'room'::text, u.counted from unnest(room) as u (counted)
             union all
            select 'cancels', '' where cancels) as r (kind, counted);
    if coalesce(chosen, '{}') = '{}' then
        return;
    end if;
    return query
    with claimed as (
        update wakeq.events_v2 e
           set locked_at = clock_timestamp() + (held_for - lease), worker = by_worker, claims = e.claims + 1,
               nonce = floor(random() * 2147483648)::integer, losses = e.losses + (e.locked_at is not null)::integer,
               starts_at = null, leased_at = clock_timestamp()
         where e.id = any (chosen)
        returning e.*, e.losses > 0 and exists (
                      select from wakeq.events_v2 before
                       where before.id = e.id and before.locked_at is not null offset 0) as took_over
    )
    select c.id, c.canvas_id, c.module::text, c.name::text, c.modifier::text, c.value::text, c.retries,
           c.delay_until, c.enqueued_at, c.locked_at, c.claims, c.nonce, c.losses, c.postponed_since, c.took_over,
           c.traceparent::text, c.object::text, c.seq, c.prev, c.options::text,
           wakeq.lease_token(secret, c.id, c.claims, c.nonce)
      from claimed c order by c.delay_until, c.id;
end
$$;

revoke all on all functions in schema wakeq from public;
