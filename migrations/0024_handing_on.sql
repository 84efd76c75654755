-- Handing on: the statement that ends runs under limits gives their places to what waits for them.
--
-- Under a limit that is always full an event costs this one statement, which is shared by those
-- that end together. An end, a wake-up and a claim cost three, with a commit each, and write the
-- waiting event twice.
--
-- `hand_on` locks the limits first, then events, and waits for none of these, as all do that lock
-- both (0019). It claims what a claim of the worker could claim now: what is first in its line, has
-- a place of all of its limits, and has no rate. Whatever else has room is woken as by
-- `wake_waiting`, and so a place goes to nobody here to whom it would not go there.

-- Which limits these events have.
create function wakeq.kinds_of(ids uuid[]) returns wakeq.limited_kind[] language plpgsql volatile as $$
begin
    return array(
        select row(k.ids, array(
                   select l.counted_canvas || '/' || l.counted_name
                     from wakeq.limits_of(
                          k.canvas_id, k.module, k.name, jsonb_build_object('limits', k.keys)) as l)
                   )::wakeq.limited_kind
          from (select array_agg(e.id) as ids, e.canvas_id, e.module, e.name, e.options -> 'limits' as keys
                  from wakeq.events_v2 e where e.id = any (kinds_of.ids)
                 group by e.canvas_id, e.module, e.name, e.options -> 'limits') as k);
end
$$;

-- Lets these events wait for a limit that is full, without a time to come back (`put_off`).
create function wakeq.put_off_all(asks wakeq.limited_ask[], used wakeq.limit_use) returns void
language plpgsql volatile as $$
begin
    insert into wakeq.limit_waits as w (event_id, canvas_id, name, due, is_paid)
    select a.id, used.canvas_id, used.name, a.due, a.is_paid from unnest(asks) as a
        on conflict (event_id) do update
        set canvas_id = excluded.canvas_id, name = excluded.name, woken_at = null, is_paid = excluded.is_paid;
end
$$;

-- Claims these events, which are locked and admitted. `held` has the limits of each, as canvas and
-- name, with spaces between, and `dropped` by which limit it is dropped, if it is.
create function wakeq.write_claims(ids uuid[], held text[], dropped text[], grace interval, by_worker text)
returns setof wakeq.limited_turn language plpgsql volatile as $$
begin
    return query
    with claimed as (
        update wakeq.events_v2 e
           set locked_at = clock_timestamp(), worker = by_worker, claims = e.claims + 1,
               nonce = floor(random() * 2147483648)::integer, losses = e.losses + (e.locked_at is not null)::integer,
               starts_at = null,
               notify_at = case when e.starts_at is not null and e.notify_at > statement_timestamp() + grace
                                then statement_timestamp() + grace else e.notify_at end,
               cancelled_by = coalesce(e.cancelled_by, dropped[array_position(ids, e.id)])
         where e.id = any (ids)
        returning e.*, e.losses > 0 and exists (
                      select from wakeq.events_v2 before
                       where before.id = e.id and before.locked_at is not null offset 0) as took_over
    )
    select 'claimed'::text, null::uuid, null::text, null::timestamptz, null::bigint,
           string_to_array(held[array_position(ids, c.id)], ' '),
           c.id, c.canvas_id, c.module::text, c.name::text, c.modifier::text, c.value::text, c.retries, c.delay_until,
           c.enqueued_at, c.locked_at, c.claims, c.nonce, c.losses, c.postponed_since, c.took_over, c.traceparent::text,
           c.object::text, c.seq, c.prev, c.options::text, c.cancelled_by is not null, null::boolean
      from claimed c;
end
$$;

-- Deletes those of these events, in the order of their ids, whose claims stand and whose rows
-- nobody has locked; returns them.
create function wakeq.end_claims(ids uuid[], fences bigint[]) returns uuid[] language plpgsql volatile as $$
declare
    ended constant uuid[] := array(
        select e.id from wakeq.events_v2 e
         where e.id = any (ids) and e.claims::bigint << 32 | e.nonce = fences[width_bucket(e.id, ids)]
           and e.locked_at is not null
           for update skip locked);
begin
    delete from wakeq.events_v2 e where e.id = any (ended);
    return ended;
end
$$;

-- Locks the states of these limits, which are in their order, and returns those for which events
-- wait. Of many limits, first all are locked in one statement, as there may be nobody who waits.
create function wakeq.lock_places(canvases uuid[], names text[]) returns wakeq.limit_use[]
language plpgsql volatile as $$
declare
    counted record;
    nth     integer;
    used    wakeq.limit_use;
    uses    wakeq.limit_use[] := '{}';
begin
    if cardinality(names) > 3 then
        for counted in select w.canvas, w.name from wakeq.lock_waited(canvases, names) as w loop
            uses := uses || wakeq.lock_use(counted.canvas, counted.name);
        end loop;
        return uses;
    end if;
    for nth in 1..cardinality(names) loop
        used := wakeq.lock_use(canvases[nth], names[nth]);
        if used.is_waited or used.is_changed then
            uses := uses || used;
        end if;
    end loop;
    return uses;
end
$$;

-- The use of a further limit, if nobody has locked its state: whoever asks has locked others, and
-- it may come before them.
create function wakeq.try_use(canvas uuid, counted text) returns wakeq.limit_use language plpgsql volatile as $$
begin
    perform from wakeq.limit_states s
      where s.canvas_id = canvas and s.name = counted for no key update skip locked;
    return case when found then wakeq.lock_use(canvas, counted) end;
end
$$;

-- What `hand_on` has found: the limits in its hands, their names, and the events that it claims.
create type wakeq.hand_over as (uses wakeq.limit_use[], names text[], ids uuid[], held text[]);

-- Those of these events that a worker could claim but for their limits (`claimable`), locked.
create function wakeq.lock_claimable(
    asked uuid[], handlers text[], canvas_handlers text[], lease interval, losses_below integer, value_max integer)
returns uuid[] language plpgsql volatile as $$
declare
    candidate wakeq.candidate;
    ids       uuid[] := '{}';
    versions  xid[] := '{}';
begin
    foreach candidate in array wakeq.claimable(
        asked, null, handlers, canvas_handlers, lease, losses_below, value_max)
    loop
        ids := ids || candidate.id;
        versions := versions || candidate.version;
    end loop;
    return array(
        select e.id from wakeq.events_v2 e
         where e.id = any (ids) and e.xmin = versions[array_position(ids, e.id)] and e.cancelled_by is null
           and e.delay_until <= clock_timestamp()
           and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
           for no key update skip locked);
end
$$;

-- The limits of an event, in their order, if it can start now without having been woken: each has a
-- place for it and no rate, and no event that was due before it waits there, but for the limit for
-- which it waits itself (`own`). Else null.
create function wakeq.places_for(
    inout handed wakeq.hand_over, counted_names text[], ask wakeq.limited_ask, own integer, lease interval,
    out limits integer[])
language plpgsql volatile as $$
declare
    counted text;
    used    wakeq.limit_use;
    nth     integer;
    found   integer[] := '{}';
begin
    foreach counted in array counted_names loop
        nth := array_position(handed.names, counted);
        if nth is null then
            used := wakeq.try_use(left(counted, 36)::uuid, substr(counted, 38));
            if used.name is null then
                return;
            end if;
            handed.uses := handed.uses || used;
            handed.names := handed.names || counted;
            nth := cardinality(handed.names);
        end if;
        used := handed.uses[nth];
        if used.pace is not null then
            return;
        end if;
        used.holders := array_remove(used.holders, ask.id);
        if cardinality(used.holders || used.taken) + used.woken >= used.concurrency and not used.is_checked then
            used.holders := wakeq.live_claims(used.holders, lease);
            used.is_checked := true;
            used.is_changed := true;
            handed.uses[nth] := used;
        end if;
        if cardinality(used.holders || used.taken) + used.woken >= used.concurrency
            or nth <> own and used.is_waited and not wakeq.is_next(ask, used.canvas_id, used.name)
        then
            return;
        end if;
        found := found || nth;
    end loop;
    limits := case when own = any (found) then found end;
end
$$;

-- The first of those that wait for these limits, as many as have places there, and for each limit
-- no more than have ended. Where others may have room, `has_room` says so.
create function wakeq.heads_of_lines(
    inout uses wakeq.limit_use[], ended uuid[], lease interval, out names text[], out asks wakeq.limited_ask[],
    out ids uuid[])
language plpgsql volatile as $$
declare
    used wakeq.limit_use;
    ask  wakeq.limited_ask;
    gone uuid;
    room integer;
    nth  integer;
begin
    names := '{}';
    asks := '{}';
    ids := '{}';
    for nth in 1..cardinality(uses) loop
        used := uses[nth];
        names := names || (used.canvas_id || '/' || used.name);
        used.has_room := used.has_room or used.is_waited and (used.concurrency is null or used.pace is not null);
        if used.is_waited and not used.has_room then
            foreach gone in array ended loop
                used.holders := array_remove(used.holders, gone);
            end loop;
            used.is_changed := true;
            if cardinality(used.holders) + used.woken >= used.concurrency then
                used.holders := wakeq.live_claims(used.holders, lease);
                used.is_checked := true;
            end if;
            room := greatest(used.concurrency - cardinality(used.holders) - used.woken, 0);
            used.has_room := room > cardinality(ended);
            ask.waits_for := nth;
            for ask.id, ask.due in
                select w.event_id, w.due from wakeq.limit_waits w
                 where w.canvas_id = used.canvas_id and w.name = used.name and w.woken_at is null
                 order by w.due, w.event_id limit least(room, cardinality(ended))
            loop
                asks := asks || ask;
                ids := ids || ask.id;
            end loop;
        end if;
        uses[nth] := used;
    end loop;
end
$$;

-- Chooses what is handed on, as many events as have ended: of those that wait for these limits the
-- first, which it locks. Where one is not, `has_room` of its limit says so.
create function wakeq.choose_next(
    uses wakeq.limit_use[], ended uuid[], handlers text[], canvas_handlers text[], lease interval,
    losses_below integer, value_max integer)
returns wakeq.hand_over language plpgsql volatile as $$
declare
    handed wakeq.hand_over;
    heads  record;
    ask    wakeq.limited_ask;
    free   uuid[];
    kinds  wakeq.limited_kind[];
    kind   wakeq.limited_kind;
    placed record;
    nth    integer;
begin
    heads := wakeq.heads_of_lines(uses, ended, lease);
    handed.uses := heads.uses;
    handed.names := heads.names;
    handed.ids := '{}';
    handed.held := '{}';
    free := wakeq.lock_claimable(heads.ids, handlers, canvas_handlers, lease, losses_below, value_max);
    kinds := wakeq.kinds_of(free);
    foreach ask in array heads.asks loop
        if ask.id = any (free) and cardinality(handed.ids) < cardinality(ended) then
            foreach kind in array kinds loop
                exit when ask.id = any (kind.ids);
            end loop;
            placed := wakeq.places_for(handed, kind.counted, ask, ask.waits_for, lease);
            handed := placed.handed;
            ask.limits := placed.limits;
        end if;
        if ask.limits is null then
            handed.uses[ask.waits_for].has_room := true;
            continue;
        end if;
        foreach nth in array ask.limits loop
            handed.uses[nth].holders := array_remove(handed.uses[nth].holders, ask.id);
            handed.uses[nth].taken := handed.uses[nth].taken || ask.id;
            handed.uses[nth].is_changed := true;
        end loop;
        handed.ids := handed.ids || ask.id;
        handed.held := handed.held || array_to_string(kind.counted, ' ');
    end loop;
    return handed;
end
$$;

-- Ends runs that have completed, and hands their places on. `ids` are in their order, with the
-- fences of their claims, and so are the limits of which they had places, each once. Returns a row
-- with the verdict 'ended' for each event that it has deleted. Those without one may stand: their
-- rows are locked, or their claims were lost. Then one with 'claimed' for each event that has a
-- place now, and is claimed by this worker, and one with 'woken' for each whose notification has to
-- be published. Without handlers it claims nothing.
create function wakeq.hand_on(
    ids uuid[], fences bigint[], canvases uuid[], names text[], handlers text[], canvas_handlers text[],
    lease interval, losses_below integer, value_max integer, grace interval, by_worker text)
returns setof wakeq.limited_turn language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
declare
    uses   wakeq.limit_use[];
    ended  uuid[];
    handed wakeq.hand_over;
    used   wakeq.limit_use;
    turn   wakeq.limited_turn;
begin
    lock table wakeq.claim_gate in row exclusive mode;
    uses := wakeq.lock_places(canvases, names);
    ended := wakeq.end_claims(ids, fences);
    turn.verdict := 'ended';
    foreach turn.id in array ended loop
        return next turn;
    end loop;
    if cardinality(uses) = 0 then
        return;
    end if;
    handed := wakeq.choose_next(uses, ended, handlers, canvas_handlers, lease, losses_below, value_max);
    foreach used in array handed.uses loop
        if used.is_changed then
            perform wakeq.write_use(used);
        end if;
    end loop;
    if cardinality(handed.ids) > 0 then
        delete from wakeq.limit_waits w where w.event_id = any (handed.ids);
        return query select w.* from wakeq.write_claims(handed.ids, handed.held, '{}', grace, by_worker) as w;
    end if;
    foreach used in array handed.uses loop
        if used.has_room then
            return query
            select 'woken'::text, null::uuid, null::text, null::timestamptz, null::bigint, null::text[], w.id,
                   w.canvas_id, e.module::text, e.name::text, e.modifier::text, null::text, null::integer,
                   null::timestamptz, null::timestamptz, null::timestamptz, null::integer, null::integer,
                   null::integer, null::timestamptz, null::boolean, null::text, null::text, null::bigint,
                   null::bigint, e.options::text, null::boolean, null::boolean
              from wakeq.wake_limit(used.canvas_id, used.name, lease, grace, ended) as w
             cross join lateral (select x.* from wakeq.events_v2 x where x.id = w.id offset 0) as e;
            exit when clock_timestamp() > statement_timestamp() + interval '2 seconds';
        end if;
    end loop;
end
$$;

revoke all on all functions in schema wakeq from public;
