-- Limited claims: which events may start now, which wait, and who is woken when there is room.
--
-- `admit` decides for the claims of workers (`claim_limited`) and for leases (0020). It locks the
-- states of all limits of its events (0018), then the events, and never waits for an event. It
-- decides about one event after the other, in the order of their due times, and writes the states
-- once. Who finds no room gets a row in `limit_waits`, and its promise moves away. Room wakes it:
-- `wake_waiting` is called for the limits of each run that has ended, and by the minute's pass.
--
-- Places come first in the decision, and nothing is taken before all is there: an event holds no
-- place while it waits for a rate, and pays no rate while it waits for a place. Only what comes
-- back a moment too early for its rate pays for a start that is up to half a second ahead, and has
-- that start however late it comes.
--
-- A rate moves with each start (GCRA), so in any time it has its share of starts, a burst, and at
-- most those of half a second more. Events that are beyond it get times to come back, one after the
-- other, up to two minutes ahead. These only spread them. All others wait as for a place.
--
-- What was woken may overtake, or two events that each have their turn in one of two limits would
-- send each other back for ever. No other event overtakes one that was due before it. What was
-- woken and can't start, for a reason that is none of its limits, leaves the line, and comes back
-- like a newcomer.

-- An event that may be claimed but for its limits, and the version of the row that says so.
create type wakeq.candidate as (id uuid, version xid);

-- An event in a call.
create type wakeq.limited_ask as (
    id         uuid,
    version    xid,
    is_free    boolean,
    canvas_id  uuid,
    due        timestamptz,
    bytes      bigint,
    -- It has never run, so it may take the place of others, or be dropped for them.
    is_new     boolean,
    -- The places of its limits among those of the call.
    limits     integer[],
    -- Whether it was put off before; the limit for which it waits, if it does; when it was told to
    -- come back; whether it has paid.
    has_waited boolean,
    waits_for  integer,
    woken_at   timestamptz,
    is_paid    boolean,
    -- 'claimed', 'full' or 'later'; the limit that holds it up; when it may come back. With
    -- `dropped_by` it is claimed to be removed.
    verdict    text,
    full_limit integer,
    starts_at  timestamptz,
    dropped_by text
);

-- Events in a call whose limits are the same, and the counted names of these in their order, each
-- as its canvas and name.
create type wakeq.limited_kind as (ids uuid[], counted text[]);

-- What `claim_limited` returns of an event, or, with the verdict 'room', of a limit.
create type wakeq.limited_turn as (
    verdict text, limit_canvas uuid, limit_name text, starts_at timestamptz, wait_us bigint, held text[],
    id uuid, canvas_id uuid, module text, name text, modifier text, value text, retries integer,
    delay_until timestamptz, enqueued_at timestamptz, locked_at timestamptz, claims integer, nonce integer,
    losses integer, postponed_since timestamptz, took_over boolean, traceparent text, object text, seq bigint,
    prev bigint, options text, is_cancelled boolean
);

-- Locks the states of all limits of these events, in their order. Each of the events has a kind.
create function wakeq.lock_limits_of(ids uuid[], out kinds wakeq.limited_kind[], out uses wakeq.limit_use[])
language plpgsql volatile as $$
declare
    counted text;
begin
    uses := '{}';
    kinds := array(
        select row(k.ids, array(
                   select l.counted_canvas || '/' || l.counted_name
                     from wakeq.limits_of(
                          k.canvas_id, k.module, k.name, jsonb_build_object('limits', k.keys)) as l)
                   )::wakeq.limited_kind
          from (select array_agg(e.id) as ids, e.canvas_id, e.module, e.name, e.options -> 'limits' as keys
                  from wakeq.events_v2 e where e.id = any (lock_limits_of.ids)
                 group by e.canvas_id, e.module, e.name, e.options -> 'limits') as k);
    -- The text of a canvas has always the same length, so this is the order of canvases and names.
    for counted in
        select distinct c.name collate "C" from unnest(kinds) as k cross join unnest(k.counted) as c (name) order by 1
    loop
        uses := uses || wakeq.lock_use(left(counted, 36)::uuid, substr(counted, 38));
    end loop;
end
$$;

-- Locks those of the events that nobody has locked or changed, and returns all of them in the order
-- of their due times, with their limits and what they wait for.
create function wakeq.lock_asking(
    candidates wakeq.candidate[], kinds wakeq.limited_kind[], uses wakeq.limit_use[], lease interval)
returns wakeq.limited_ask[] language plpgsql volatile as $$
declare
    asked    constant uuid[] := array(
        select c.id from unnest(candidates) with ordinality as c order by c.ordinality);
    versions constant xid[] := array(
        select c.version from unnest(candidates) with ordinality as c order by c.ordinality);
    names    constant text[] := array(
        select u.canvas_id || '/' || u.name from unnest(uses) with ordinality as u order by u.ordinality);
    locked   uuid[];
begin
    locked := array(
        select e.id from wakeq.events_v2 e
         where e.id = any (asked) and e.xmin = versions[array_position(asked, e.id)]
           and e.delay_until <= clock_timestamp()
           and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
           for no key update skip locked);
    return array(
        with numbered as materialized (
            select k.ids, array(
                       select array_position(names, c.name)
                         from unnest(k.counted) with ordinality as c (name, nth) order by c.nth) as limits
              from unnest(kinds) as k
        )
        select row(e.id, versions[array_position(asked, e.id)], e.id = any (locked), e.canvas_id,
                   coalesce(w.due, e.delay_until), octet_length(e.value), e.claims = 0,
                   case when e.cancelled_by is null then k.limits else '{}' end,
                   e.starts_at is not null, array_position(names, w.canvas_id || '/' || w.name), w.woken_at,
                   coalesce(w.is_paid, false), null, null, null, null)::wakeq.limited_ask
          from numbered k cross join unnest(k.ids) as i (id)
         cross join lateral (select x.* from wakeq.events_v2 x where x.id = i.id offset 0) as e
          left join lateral (
               select x.* from wakeq.limit_waits x
                where e.starts_at is not null and x.event_id = i.id offset 0) as w on true
         order by coalesce(w.due, e.delay_until), e.id);
end
$$;

-- The first limit in which an event finds no place; null if there is a place in each. If one seems
-- to be full, with the places that are kept for others, its holders without a live claim are
-- dropped. One that was not woken finds no place where others wait that were due before it.
create function wakeq.find_place(
    inout uses wakeq.limit_use[], ask wakeq.limited_ask, lease interval, out full_one integer)
language plpgsql volatile as $$
declare
    nth    integer;
    others integer;
    kept   integer;
begin
    foreach nth in array ask.limits loop
        continue when uses[nth].concurrency is null;
        kept := case when ask.woken_at is null then uses[nth].woken else 0 end;
        others := cardinality(array_remove(uses[nth].holders, ask.id) || uses[nth].taken);
        if others + kept >= uses[nth].concurrency and not uses[nth].is_checked then
            uses[nth].holders := wakeq.live_claims(uses[nth].holders, lease);
            uses[nth].is_checked := true;
            uses[nth].is_changed := true;
            others := cardinality(array_remove(uses[nth].holders, ask.id) || uses[nth].taken);
        end if;
        if others + kept >= uses[nth].concurrency then
            full_one := nth;
            return;
        elsif ask.woken_at is null and uses[nth].is_waited
            and not wakeq.is_next(ask, uses[nth].canvas_id, uses[nth].name)
        then
            uses[nth].has_room := true;
            full_one := nth;
            return;
        end if;
    end loop;
end
$$;

-- Whether no event waits for this limit that was due before this one.
create function wakeq.is_next(ask wakeq.limited_ask, canvas uuid, counted text) returns boolean
language plpgsql volatile as $$
declare
    next wakeq.limit_waits;
begin
    select * into next from wakeq.limit_waits w
     where w.canvas_id = canvas and w.name = counted and w.woken_at is null
     order by w.due, w.event_id limit 1;
    return next.event_id is null or (ask.due, ask.id) <= (next.due, next.event_id);
end
$$;

-- When all rates of an event allow it to start, and the rate that is the last to do so; null if it
-- has none, or has paid. One that was not woken comes after those that were given times to come
-- back, and waits without a time (`infinity`) where others do that were due before it.
create function wakeq.find_start(
    uses wakeq.limit_use[], ask wakeq.limited_ask, out start timestamptz, out slowest integer)
language plpgsql volatile as $$
declare
    nth     integer;
    free_at timestamptz;
begin
    if ask.is_paid then
        return;
    end if;
    foreach nth in array ask.limits loop
        continue when uses[nth].pace is null;
        free_at := uses[nth].next_at - uses[nth].ahead;
        if ask.woken_at is null then
            free_at := case when uses[nth].is_waited and not wakeq.is_next(ask, uses[nth].canvas_id, uses[nth].name)
                            then 'infinity' else greatest(free_at, uses[nth].line_at) end;
        end if;
        if slowest is null or free_at > start then
            start := free_at;
            slowest := nth;
        end if;
    end loop;
end
$$;

-- Takes a start at this time from all rates of an event.
create function wakeq.pay_rates(inout uses wakeq.limit_use[], ask wakeq.limited_ask, start timestamptz)
language plpgsql volatile as $$
declare
    nth integer;
begin
    foreach nth in array ask.limits loop
        continue when uses[nth].pace is null or ask.is_paid;
        uses[nth].next_at := greatest(uses[nth].next_at, start) + uses[nth].pace;
        uses[nth].is_changed := true;
    end loop;
end
$$;

-- Decides about one event. What it takes is taken in the states only, and what it waits for is
-- written at once, since the next event may replace it, but for what its own row says of it.
create function wakeq.decide(inout uses wakeq.limit_use[], inout ask wakeq.limited_ask, lease interval)
language plpgsql volatile as $$
declare
    moment  constant timestamptz := clock_timestamp();
    nth     integer;
    is_full boolean;
    start   timestamptz;
    -- What a waiting event is to come back at, if that is known.
    back    timestamptz;
    waits   record;
begin
    if ask.woken_at > moment and ask.waits_for is not null then
        -- Somebody made it due before its time. Its limit may be gone: then it waits there no more.
        ask := wakeq.put_off(ask, uses[ask.waits_for], ask.waits_for, ask.woken_at, ask.is_paid);
        return;
    end if;
    select f.uses, f.full_one into uses, nth from wakeq.find_place(uses, ask, lease) as f;
    is_full := nth is not null;
    if not is_full then
        select f.start, f.slowest into start, nth from wakeq.find_start(uses, ask) as f;
        if start > moment and start <= moment + interval '500 ms' and ask.woken_at is not null then
            uses := wakeq.pay_rates(uses, ask, start);
            ask := wakeq.put_off(ask, uses[nth], nth, start, true);
            return;
        elsif start > moment then
            back := greatest(start, uses[nth].line_at);
            back := case when back <= moment + least(interval '2 minutes', 10000 * uses[nth].pace) then back end;
        else
            nth := null;
        end if;
    end if;
    if nth is not null then
        waits := wakeq.make_wait(uses, ask, nth, back, is_full, lease);
        uses := waits.uses;
        ask := waits.ask;
        return;
    end if;
    ask.verdict := 'claimed';
    uses := wakeq.leave_line(wakeq.take(uses, ask, moment), ask);
    if ask.has_waited then
        delete from wakeq.limit_waits w where w.event_id = ask.id;
    end if;
end
$$;

-- Takes a place of each limit of an event that has places, and a start of its rates.
create function wakeq.take(inout uses wakeq.limit_use[], ask wakeq.limited_ask, moment timestamptz)
language plpgsql volatile as $$
declare
    nth integer;
begin
    uses := wakeq.pay_rates(uses, ask, moment);
    foreach nth in array ask.limits loop
        continue when uses[nth].concurrency is null;
        uses[nth].holders := array_remove(uses[nth].holders, ask.id);
        uses[nth].taken := uses[nth].taken || ask.id;
        uses[nth].is_changed := true;
    end loop;
end
$$;

-- Somebody who was woken has come: the place is not kept any longer. If it has not taken it, others
-- that wait may.
create function wakeq.leave_line(inout uses wakeq.limit_use[], ask wakeq.limited_ask) language plpgsql volatile as $$
begin
    if ask.waits_for is not null and ask.woken_at > clock_timestamp() - interval '10 s' then
        uses[ask.waits_for].woken := greatest(uses[ask.waits_for].woken - 1, 0);
        uses[ask.waits_for].has_room :=
            uses[ask.waits_for].has_room or ask.verdict is null and uses[ask.waits_for].is_waited;
    end if;
end
$$;

-- Lets an event wait for one of its limits, until this time if there is one, or does what the limit
-- does for a newcomer. It cancels what runs only for a place, as that makes no room in a rate.
-- While somebody has the row of what is to be cancelled, it decides nothing: the event asks again.
create function wakeq.make_wait(
    inout uses wakeq.limit_use[], inout ask wakeq.limited_ask, nth integer, start timestamptz, is_full boolean,
    lease interval)
language plpgsql volatile as $$
declare
    used constant wakeq.limit_use := uses[nth];
    -- Whether it takes the time at which another one was to come back.
    inherited timestamptz;
    cancelled text;
begin
    uses := wakeq.leave_line(uses, ask);
    if ask.is_new and not ask.has_waited then
        if used.on_full = 'drop' then
            ask.verdict := 'claimed';
            ask.dropped_by := 'limit:' || used.name;
            ask.limits := '{}';
            return;
        elsif used.on_full = 'cancel' and is_full then
            cancelled := wakeq.cancel_holder(used, lease);
        end if;
        if cancelled = 'locked' then
            return;
        elsif used.on_full = 'replace' or cancelled = 'none' then
            inherited := wakeq.cancel_waiting(used);
        end if;
    end if;
    if inherited is null and start is not null then
        uses[nth].line_at := start + used.pace;
        uses[nth].is_changed := true;
    end if;
    ask := wakeq.put_off(ask, used, nth, coalesce(inherited, start), ask.is_paid);
    uses[nth].is_waited := uses[nth].is_waited or ask.verdict = 'full';
end
$$;

-- Decides which of these events may start now, at most `wanted` with `bytes_max` bytes of values,
-- or a single one. Returns them with the verdicts. Those without one were locked or changed by
-- somebody else. The caller claims the claimed ones in the same transaction.
create function wakeq.admit(
    candidates wakeq.candidate[], wanted integer, bytes_max bigint, lease interval, horizon interval, grace interval,
    out asks wakeq.limited_ask[], out uses wakeq.limit_use[])
language plpgsql volatile as $$
declare
    ask     wakeq.limited_ask;
    kinds   wakeq.limited_kind[];
    decided record;
    nth     integer;
    -- Which of the limits concern an event. It is decided with these only: each function that gets
    -- an array copies all of it.
    own     integer[];
begin
    asks := '{}';
    select l.kinds, l.uses into kinds, uses
      from wakeq.lock_limits_of(array(select c.id from unnest(candidates) as c)) as l;
    foreach ask in array wakeq.lock_asking(candidates, kinds, uses, lease) loop
        exit when wanted <= 0 or ask.bytes > bytes_max and cardinality(asks) > 0;
        if ask.is_free then
            own := ask.limits;
            if ask.waits_for is not null and ask.waits_for <> all (own) then
                own := own || ask.waits_for;
            end if;
            ask.waits_for := array_position(own, ask.waits_for);
            ask.limits := array(select generate_subscripts(ask.limits, 1));
            decided := wakeq.decide(array(
                select uses[o.nth] from unnest(own) with ordinality as o (nth, place) order by o.place), ask, lease);
            ask := decided.ask;
            ask.waits_for := own[ask.waits_for];
            ask.full_limit := own[ask.full_limit];
            ask.limits := own[:cardinality(ask.limits)];
            for nth in 1..cardinality(own) loop
                uses[own[nth]] := decided.uses[nth];
            end loop;
        end if;
        asks := asks || ask;
        if ask.verdict = 'claimed' and ask.dropped_by is null then
            wanted := wanted - 1;
            bytes_max := bytes_max - ask.bytes;
        end if;
    end loop;
    for nth in 1..cardinality(uses) loop
        if uses[nth].is_changed then
            perform wakeq.write_use(uses[nth]);
        end if;
    end loop;
    perform wakeq.write_waits(asks, horizon, grace);
end
$$;

-- Those of these events that a worker could claim but for their limits: by the conditions of
-- `Sql::claim_rows`, where they are explained. The caller has passed the gate.
create function wakeq.claimable(
    ids uuid[], canvases uuid[], handlers text[], canvas_handlers text[], lease interval, losses_below integer,
    value_max integer)
returns wakeq.candidate[] language plpgsql volatile as $$
begin
    return array(
        select row(e.id, e.xmin)::wakeq.candidate from wakeq.events_v2 e
         where e.id = any (ids) and e.canvas_id is not distinct from canvases[array_position(ids, e.id)]
           and e.queue is null and e.delay_until <= clock_timestamp()
           and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
           and e.losses + (e.locked_at is not null)::integer < losses_below and octet_length(e.value) <= value_max
           and (e.module || '/' || e.name || '/' || e.modifier = any (handlers)
                or e.canvas_id || '/' || e.module || '/' || e.name || '/' || e.modifier = any (canvas_handlers))
           and ((select not exists (select from wakeq.pulled_handlers))
                or not wakeq.is_pulled_handler(e.canvas_id, e.module, e.name))
           and ((select not exists (select from wakeq.scheduling_rules))
                or not wakeq.is_held_handler(e.canvas_id, e.module, e.name))
           and (e.object is null or e.id = any (coalesce((select wakeq.firsts_of_lanes(ids, true)), '{}'))));
end
$$;

-- Claims events that have limits, as far as these have room. Returns a row for each event that
-- could be claimed but for its limits, with the verdict 'claimed', 'full' (it waits, and will be
-- woken) or 'later' (it comes back by itself; without a limit: somebody else had it in hand), and
-- one with the verdict 'room' for each limit for which `wake_waiting` has to be called. What comes
-- without having been woken, as by a repeated notification, has a promise that is far ahead: it
-- moves back, in case the worker dies.
create function wakeq.claim_limited(
    ids uuid[], canvases uuid[], handlers text[], canvas_handlers text[], lease interval, losses_below integer,
    value_max integer, horizon interval, grace interval, by_worker text)
returns setof wakeq.limited_turn language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
declare
    asks  wakeq.limited_ask[];
    uses  wakeq.limit_use[];
    asked uuid[];
begin
    lock table wakeq.claim_gate in row exclusive mode;
    select a.asks, a.uses into asks, uses
      from wakeq.admit(wakeq.claimable(ids[:1000], canvases, handlers, canvas_handlers, lease, losses_below, value_max),
                       1000, null, lease, horizon, grace) as a;
    asked := array(select a.id from unnest(asks) with ordinality as a order by a.ordinality);
    return query
    with claimed as (
        update wakeq.events_v2 e
           set locked_at = clock_timestamp(), worker = by_worker, claims = e.claims + 1,
               nonce = floor(random() * 2147483648)::integer, losses = e.losses + (e.locked_at is not null)::integer,
               starts_at = null,
               notify_at = case when e.starts_at is not null and e.notify_at > statement_timestamp() + grace
                                then statement_timestamp() + grace else e.notify_at end,
               cancelled_by = coalesce(e.cancelled_by, asks[array_position(asked, e.id)].dropped_by)
         where e.id = any (array(select a.id from unnest(asks) as a where a.verdict = 'claimed'))
        returning e.*, e.losses > 0 and exists (
                      select from wakeq.events_v2 before
                       where before.id = e.id and before.locked_at is not null offset 0) as took_over
    )
    select 'claimed'::text, null::uuid, null::text, null::timestamptz, null::bigint,
           wakeq.held_by(asks[array_position(asked, c.id)].limits, uses),
           c.id, c.canvas_id, c.module::text, c.name::text, c.modifier::text, c.value::text, c.retries, c.delay_until,
           c.enqueued_at, c.locked_at, c.claims, c.nonce, c.losses, c.postponed_since, c.took_over, c.traceparent::text,
           c.object::text, c.seq, c.prev, c.options::text, c.cancelled_by is not null
      from claimed c;
    return query select * from wakeq.not_claimed(asks, uses);
end
$$;

-- These limits of a call, as canvas and name.
create function wakeq.held_by(limits integer[], uses wakeq.limit_use[]) returns text[] language plpgsql immutable as $$
begin
    return array(select uses[l.nth].canvas_id || '/' || uses[l.nth].name from unnest(limits) as l (nth));
end
$$;

-- What `claim_limited` returns beside what it claims.
create function wakeq.not_claimed(asks wakeq.limited_ask[], uses wakeq.limit_use[]) returns setof wakeq.limited_turn
language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
    ask    wakeq.limited_ask;
    nth    integer;
    turn   wakeq.limited_turn;
begin
    foreach ask in array asks loop
        continue when ask.verdict = 'claimed';
        turn := null;
        turn.verdict := coalesce(ask.verdict, 'later');
        turn.id := ask.id;
        turn.canvas_id := ask.canvas_id;
        turn.limit_canvas := uses[ask.full_limit].canvas_id;
        turn.limit_name := uses[ask.full_limit].name;
        if turn.verdict = 'later' then
            turn.starts_at := coalesce(ask.starts_at, moment + interval '1 s');
            turn.wait_us := 1000000 * extract(epoch from greatest(turn.starts_at - moment, interval '0'));
        end if;
        return next turn;
    end loop;
    for nth in 1..cardinality(uses) loop
        if uses[nth].has_room then
            turn := null;
            turn.verdict := 'room';
            turn.limit_canvas := uses[nth].canvas_id;
            turn.limit_name := uses[nth].name;
            return next turn;
        end if;
    end loop;
end
$$;

revoke all on all functions in schema wakeq from public;
