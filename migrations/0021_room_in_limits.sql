-- Room in limits: who is woken when events that had places have ended, or a rate goes on.
--
-- Whoever has ended a run with limits calls `wake_waiting` for them afterwards, with a snapshot
-- that sees the end. It locks the state of the limit, so that a claim which found it full a moment
-- before has written who waits. The minute's pass calls it for what nobody has looked at: after a
-- lost claim, for rates whose waiting events have all been told to come, and for definitions that
-- were changed or removed. Whoever deletes events that were told to come calls it for the places
-- that were kept for them. A limit may also make room for a newcomer itself, by cancelling another
-- event. What waits is written here as well, and states that say nothing more are deleted.

-- Wakes events that wait for these limits: as many as have room, and of those whose limit is gone
-- 500 a call. `ended` are events whose runs have ended, if the caller knows them: then the other
-- holders need not be looked at. Returns those whose notifications have to be published. After two
-- seconds it leaves the other limits to the next call, or to the minute's pass: 1,000 of them may
-- have 500 events each, and a statement that ends for its time wakes none.
create function wakeq.wake_waiting(
    canvases uuid[], names text[], lease interval, grace interval, ended uuid[] default '{}')
returns table (id uuid, canvas_id uuid) language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    counted record;
begin
    -- A claim that has found one full is over then, and the next statement sees what it has
    -- written.
    perform
       from (select distinct a.canvas, a.name collate "C" as name from unnest(canvases, names) as a (canvas, name)
              order by 1, 2 limit 1000) as a
      cross join lateral (
            select from wakeq.limit_states s where s.canvas_id = a.canvas and s.name = a.name for no key update) as s;
    for counted in
        select distinct a.canvas, a.name collate "C" as name from unnest(canvases, names) as a (canvas, name)
         where wakeq.count_waits(a.canvas, a.name, 1) > 0 order by 1, 2 limit 1000
    loop
        return query select * from wakeq.wake_limit(counted.canvas, counted.name, lease, grace, ended);
        exit when clock_timestamp() > statement_timestamp() + interval '2 seconds';
    end loop;
end
$$;

-- Wakes events that wait for one limit, in their order. One whose row somebody has locked is told
-- as well, without a word in the tables: it stays in the line, and its claim is tried until the
-- lock is gone. It takes nothing from the next one, as the lock may be that of its end. One that
-- was called back is not due before the time that it was given, and asks again then.
create function wakeq.wake_limit(canvas uuid, counted text, lease interval, grace interval, ended uuid[])
returns table (id uuid, canvas_id uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
    begun   record;
    used    wakeq.limit_use;
    room    integer;
    start   timestamptz;
    waiting record;
    outcome text;
    given   integer := 0;
    locked  integer := 0;
    -- Those that are told, and of them those that may come at once.
    told    uuid[] := '{}';
    at_once uuid[] := '{}';
begin
    begun := wakeq.room_of(wakeq.begin_line(wakeq.lock_use(canvas, counted)), lease, ended);
    used := begun.used;
    room := begun.room;
    for waiting in
        select w.event_id from wakeq.limit_waits w
         where w.canvas_id = canvas and w.name = counted and w.woken_at is null
         order by w.due, w.event_id limit case when room > 0 then 2000 else 0 end
    loop
        start := greatest(clock_timestamp(), used.next_at - used.ahead, used.line_at);
        exit when room <= 0 or given = 500 or used.pace is not null
            and start > clock_timestamp() + least(interval '2 minutes', 10000 * used.pace);
        outcome := wakeq.wake_one(waiting.event_id, start, not used.is_defined, lease, grace);
        if outcome in ('now', 'later', 'freed') then
            room := room - (outcome <> 'freed')::integer;
            given := given + 1;
            at_once := case when outcome = 'later' then at_once else at_once || waiting.event_id end;
        elsif outcome = 'locked' and locked < least(room, 100) then
            locked := locked + 1;
        else
            continue;
        end if;
        told := told || waiting.event_id;
        if outcome in ('now', 'later') and used.pace is not null then
            used.line_at := start + used.pace;
            used.is_changed := true;
        end if;
    end loop;
    perform wakeq.wake_now(at_once, grace);
    if used.is_changed then
        perform wakeq.write_use(used);
    end if;
    return query
    select e.id, e.canvas_id from wakeq.events_v2 e where e.id = any (told) order by array_position(told, e.id);
end
$$;

-- Writes that these events, which are locked, may come at once: those of them that wait keep their
-- places in the line until they do. In one statement, which costs more than what it writes for an
-- event.
create function wakeq.wake_now(ids uuid[], grace interval) returns void language plpgsql volatile as $$
declare
    moment  constant timestamptz := clock_timestamp();
    horizon constant interval := wakeq.duration_of('horizon', interval '10 minutes');
begin
    if ids = '{}' then
        return;
    end if;
    update wakeq.limit_waits w set woken_at = moment where w.event_id = any (ids);
    update wakeq.events_v2 e
       set starts_at = least(e.delay_until, moment), delay_until = least(e.delay_until, moment), probes = 0,
           notify_at = wakeq.wake_at(least(e.delay_until, moment), statement_timestamp(), horizon, grace)
     where e.id = any (ids);
end
$$;

-- How many events may be woken for a limit, at most 500. If it seems to be full, its holders
-- without a live claim are dropped. Some of those that were woken have not come in ten seconds:
-- perhaps nobody runs their handlers now, and as many more are woken.
create function wakeq.room_of(inout used wakeq.limit_use, lease interval, ended uuid[], out room integer)
language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
    gone   uuid[];
begin
    room := 500;
    if used.concurrency is null then
        return;
    end if;
    if not used.is_waited then
        return;
    end if;
    gone := array(select u.id from unnest(ended) as u (id) where u.id = any (used.holders));
    if gone <> '{}' then
        gone := array(select g.id from unnest(gone) as g (id) where g.id <> all (wakeq.live_claims(gone, lease)));
        used.holders := array(select h.id from unnest(used.holders) with ordinality as h (id, place)
                               where h.id <> all (gone) order by h.place);
        used.is_changed := true;
    end if;
    if cardinality(used.holders) + used.woken >= used.concurrency then
        used.holders := wakeq.live_claims(used.holders, lease);
        used.is_changed := true;
    end if;
    room := used.concurrency - cardinality(used.holders) - used.woken;
    if room > 0 then
        room := least(500, room + (select count(*) from (
            select from wakeq.limit_waits w
             where w.canvas_id = used.canvas_id and w.name = used.name and w.woken_at is not null
               and w.woken_at <= moment - interval '10 s' limit 500) as counted_ones));
    end if;
end
$$;

-- Writes that an event waits, until a time if there is one. What the event's own row says of it,
-- `write_waits` writes.
create function wakeq.put_off(
    inout ask wakeq.limited_ask, used wakeq.limit_use, nth integer, start timestamptz, is_paid boolean)
language plpgsql volatile as $$
begin
    insert into wakeq.limit_waits as w (event_id, canvas_id, name, due, woken_at, is_paid)
    values (ask.id, used.canvas_id, used.name, ask.due, start, put_off.is_paid)
        on conflict (event_id) do update
        set canvas_id = excluded.canvas_id, name = excluded.name, woken_at = excluded.woken_at,
            is_paid = excluded.is_paid;
    ask.verdict := case when start is null then 'full' else 'later' end;
    ask.full_limit := nth;
    ask.starts_at := start;
end
$$;

-- Writes in the rows of the events that wait until when they do: until a time, of which they are
-- then told again, or until they are woken, for which an hour is the safety net. In one statement,
-- which costs more than what it writes for an event.
create function wakeq.write_waits(asks wakeq.limited_ask[], horizon interval, grace interval)
returns void language plpgsql volatile as $$
declare
    -- In the order of their ids: the place of one is then found by halves.
    ids    constant uuid[] := array(
        select a.id from unnest(asks) as a where a.verdict in ('full', 'later') order by a.id);
    starts constant timestamptz[] := array(
        select a.starts_at from unnest(asks) as a where a.verdict in ('full', 'later') order by a.id);
begin
    if ids = '{}' then
        return;
    end if;
    update wakeq.events_v2 e
       set starts_at = coalesce(starts[width_bucket(e.id, ids)], clock_timestamp()),
           delay_until = coalesce(starts[width_bucket(e.id, ids)], e.delay_until), probes = 0,
           notify_at = case when starts[width_bucket(e.id, ids)] is null then clock_timestamp() + interval '1 hour'
                            else wakeq.wake_at(
                                starts[width_bucket(e.id, ids)], statement_timestamp(), horizon, grace) end
     where e.id = any (ids);
end
$$;

-- Puts events back into the line, at its end, that were told to come and have not for five minutes.
create function wakeq.begin_line(inout used wakeq.limit_use) language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
    lost   constant uuid[] := array(
        select w.event_id from wakeq.limit_waits w
         where w.canvas_id = used.canvas_id and w.name = used.name and w.woken_at is not null
           and w.woken_at < moment - interval '5 minutes' limit 500 for update skip locked);
begin
    if lost <> '{}' then
        update wakeq.limit_waits w set woken_at = null, due = moment where w.event_id = any (lost);
        used.is_waited := true;
    end if;
end
$$;

-- Puts events back into the line, where they were, that were told to come later, since another rate
-- is in force now. Returns whether there were any.
create function wakeq.call_back(canvas uuid, counted text) returns boolean language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
begin
    update wakeq.limit_waits w set woken_at = null
     where w.event_id = any (array(
           select x.event_id from wakeq.limit_waits x
            where x.canvas_id = canvas and x.name = counted and x.woken_at is not null and x.woken_at > moment
              and not x.is_paid limit 10000 for update skip locked));
    return found;
end
$$;

-- Decides how one event is woken at this time, and locks it. Returns 'now', which `wake_now` has to
-- write; 'later', which this has written; 'freed' if it waits no more, because the limit is gone or
-- a rule holds it, under which it is to be parked: then it may come at once, too; 'gone' if it has
-- ended, is parked, runs or was postponed, but not by a limit; or 'locked'. What runs was claimed
-- when nothing limited it any more, and its promise is still as far ahead as that of what waits: it
-- moves back, in case the worker dies.
create function wakeq.wake_one(event uuid, start timestamptz, is_free boolean, lease interval, grace interval)
returns text language plpgsql volatile as $$
declare
    asleep  record;
    outcome text;
    moment  constant timestamptz := clock_timestamp();
begin
    select e.canvas_id, e.module, e.name,
           e.notify_at is null or coalesce(e.locked_at >= moment - lease, false)
           or e.delay_until > moment and e.delay_until is distinct from e.starts_at as is_away
      into asleep from wakeq.events_v2 e where e.id = event for no key update skip locked;
    if asleep is null then
        if exists (select from wakeq.events_v2 e where e.id = event) then
            return 'locked';
        end if;
        outcome := 'gone';
    elsif asleep.is_away then
        update wakeq.events_v2 e set notify_at = moment + grace
         where e.id = event and e.locked_at >= moment - lease and e.notify_at > moment + grace;
        outcome := 'gone';
    elsif is_free or exists (select from wakeq.scheduling_rules)
        and wakeq.is_held_handler(asleep.canvas_id, asleep.module, asleep.name)
    then
        outcome := 'freed';
    elsif start <= moment then
        return 'now';
    else
        update wakeq.limit_waits w set woken_at = start where w.event_id = event;
        update wakeq.events_v2 e
           set starts_at = start, delay_until = start, probes = 0,
               notify_at = wakeq.wake_at(start, statement_timestamp(),
                                         wakeq.duration_of('horizon', interval '10 minutes'), grace)
         where e.id = event;
        return 'later';
    end if;
    delete from wakeq.limit_waits w where w.event_id = event;
    return outcome;
end
$$;

-- Those of these events that wait and would not be admitted now: they were not told to come yet, or
-- come after as many as there is room for. Each limit is looked at once.
create function wakeq.stand_in_line(ids uuid[], lease interval) returns uuid[] language plpgsql volatile as $$
begin
    return array(
        with waiting as materialized (
            select w.event_id, w.canvas_id, w.name, w.woken_at from wakeq.limit_waits w where w.event_id = any (ids)
        ), lines as materialized (
            select l.canvas_id, l.name, array(
                       select w.event_id from wakeq.limit_waits w
                        where w.canvas_id = l.canvas_id and w.name = l.name and w.woken_at is null
                        order by w.due, w.event_id limit wakeq.room_for(l.canvas_id, l.name, lease)) as next
              from (select distinct w.canvas_id, w.name from waiting w where w.woken_at is null) as l
        )
        select w.event_id from waiting w
         where w.woken_at > clock_timestamp()
            or w.woken_at is null and not exists (
                   select from lines l
                    where l.canvas_id = w.canvas_id and l.name = w.name and w.event_id = any (l.next)));
end
$$;

-- How many events that wait for a limit there seems to be room for, without its lock.
create function wakeq.room_for(canvas uuid, counted text, lease interval) returns integer
language plpgsql volatile as $$
declare
    definition constant wakeq.limits := wakeq.limit_on(canvas, counted);
    state      wakeq.limit_states;
    rate       constant text := wakeq.rate_in(definition);
    pace       constant interval := definition.rate_period / definition.rate_count;
    moment     constant timestamptz := clock_timestamp();
    room       integer := 500;
begin
    select * into state from wakeq.limit_states s where s.canvas_id = canvas and s.name = counted;
    if definition.concurrency is not null then
        room := definition.concurrency - cardinality(wakeq.live_claims(coalesce(state.holders, '{}'), lease))
            - wakeq.count_kept(canvas, counted, definition.concurrency, state.rate is distinct from rate);
    end if;
    if state.rate = rate
        and greatest(state.next_at - (definition.rate_burst - 1) * pace, wakeq.line_end(state, pace))
            > moment + least(interval '2 minutes', 10000 * pace)
    then
        return 0;
    end if;
    return greatest(room, 0);
end
$$;

-- Whether events were told to come later, by another rate than that which is in force now.
create function wakeq.is_told_anew(canvas uuid, counted text) returns boolean language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
begin
    return exists (
            select from wakeq.limit_waits w
             where w.canvas_id = canvas and w.name = counted and w.woken_at is not null and w.woken_at > moment
               and not w.is_paid)
       and (select s.rate from wakeq.limit_states s where s.canvas_id = canvas and s.name = counted)
           is distinct from wakeq.rate_in(wakeq.limit_on(canvas, counted));
end
$$;

-- Counted names for which events wait although there seems to be room, or were told to come by a
-- rate that is not in force any more, at most `page` of them. It
-- looks at 10,000 names, or for a second where that takes longer, from the one after `after_name`
-- on, and at none of a canvas after `last_canvas`: who changes limits of one canvas pays for its
-- names only. If there may be more, a last row without room says behind which name the next look
-- goes on.
create function wakeq.limits_with_room(
    lease interval, page integer default 500, after_canvas uuid default null, after_name text default null,
    last_canvas uuid default null)
returns table (canvas_id uuid, name text, has_room boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
    at     record;
    given  integer := 0;
    is_end boolean := false;
begin
    canvas_id := coalesce(after_canvas, '00000000-0000-0000-0000-000000000000');
    name := coalesce(after_name, '');
    for looked in 1..10000 loop
        select n.canvas_id, n.name, n.are_told into at
          from ((select w.canvas_id, w.name, false as are_told from wakeq.limit_waits w
                  where (w.canvas_id, w.name) > (limits_with_room.canvas_id, limits_with_room.name)
                    and w.woken_at is null
                  order by w.canvas_id, w.name limit 1)
                 union all
                (select w.canvas_id, w.name, true from wakeq.limit_waits w
                  where (w.canvas_id, w.name) > (limits_with_room.canvas_id, limits_with_room.name)
                    and w.woken_at is not null
                  order by w.canvas_id, w.name limit 1)) as n
         order by n.canvas_id, n.name, n.are_told limit 1;
        is_end := not found or coalesce(at.canvas_id > last_canvas, false);
        exit when is_end or given >= page
               or looked > 1 and clock_timestamp() > statement_timestamp() + interval '1 second';
        canvas_id := at.canvas_id;
        name := at.name;
        has_room := case when at.are_told then wakeq.is_told_anew(canvas_id, name)
                         else wakeq.room_for(canvas_id, name, lease) > 0 end;
        if has_room then
            given := given + 1;
            return next;
        end if;
    end loop;
    if not is_end then
        has_room := false;
        return next;
    end if;
end
$$;

-- The limits at which places were kept for these events, as canvas and name. For a statement that
-- deletes the events: they are locked by then, so nobody tells one of them to come any more, and
-- what waits for them goes only with the statement's end (0016). Whoever has deleted them calls
-- `wake_waiting` for these limits.
create function wakeq.places_kept(ids uuid[]) returns text[] language plpgsql volatile as $$
begin
    return array(
        select distinct w.canvas_id || '/' || w.name from wakeq.limit_waits w
         where w.event_id = any (ids) and coalesce(w.woken_at > '-infinity', false));
end
$$;

-- Ends the waits of these events, and returns the limits at which places were kept for them. For a
-- statement that changes the events: a wait that began while it waited for their rows is seen here,
-- and not by the statement itself. Whoever has changed them calls `wake_waiting` for these limits.
create function wakeq.leave_waits(ids uuid[]) returns text[] language plpgsql volatile as $$
declare
    kept constant text[] := wakeq.places_kept(ids);
begin
    delete from wakeq.limit_waits w where w.event_id = any (ids);
    return kept;
end
$$;

-- Cancels the oldest of the events that have places and are not cancelled yet, as `cancel_running`
-- does. Returns 'cancelled'; 'none' if there is none, as each was cancelled for another newcomer;
-- or 'locked' if somebody has its row in hand, perhaps to end it.
create function wakeq.cancel_holder(used wakeq.limit_use, lease interval) returns text
language plpgsql volatile as $$
declare
    oldest constant uuid := (
        select e.id from wakeq.events_v2 e
         where e.id = any (used.holders || used.taken) and e.cancelled_by is null
           and (e.locked_at >= clock_timestamp() - lease or e.id = any (used.taken))
         order by array_position(used.holders || used.taken, e.id) limit 1);
begin
    if oldest is null then
        return 'none';
    end if;
    update wakeq.events_v2 e set cancelled_by = 'limit:' || used.name
     where e.id = any (array(
           select x.id from wakeq.events_v2 x
            where x.id = oldest and x.cancelled_by is null for no key update skip locked));
    return case when found then 'cancelled' else 'locked' end;
end
$$;

-- Cancels the event that waits for a limit for longest, which the minute's pass then removes.
-- Returns when it was to come back, if that is ahead.
create function wakeq.cancel_waiting(used wakeq.limit_use) returns timestamptz language plpgsql volatile as $$
declare
    moment  constant timestamptz := clock_timestamp();
    waiting record;
begin
    for waiting in
        (select w.event_id, w.woken_at from wakeq.limit_waits w
          where w.canvas_id = used.canvas_id and w.name = used.name and w.woken_at is null
          order by w.due, w.event_id limit 10)
         union all
        (select w.event_id, w.woken_at from wakeq.limit_waits w
          where w.canvas_id = used.canvas_id and w.name = used.name and w.woken_at is not null
            and w.woken_at > moment and not w.is_paid
          order by w.woken_at limit 10)
    loop
        update wakeq.events_v2 e set cancelled_by = 'limit:' || used.name
         where e.id = any (array(
               select x.id from wakeq.events_v2 x where x.id = waiting.event_id and x.cancelled_by is null
                  for no key update skip locked));
        if found then
            delete from wakeq.limit_waits w where w.event_id = waiting.event_id;
            return waiting.woken_at;
        end if;
    end loop;
    return null;
end
$$;

-- Looks at up to 1,000 states that have not been used for an hour, and deletes those that say
-- nothing more: no event holds a place or waits, and the rate is as if it had never been used. The
-- others are looked at again an hour later.
create function wakeq.expire_limit_states(lease interval) returns bigint language plpgsql volatile as $$
declare
    state     record;
    looked_at bigint := 0;
begin
    for state in
        select s.canvas_id, s.name,
               greatest(s.next_at, s.line_at) <= clock_timestamp()
               and wakeq.live_claims(s.holders, lease) = '{}'
               and wakeq.count_waits(s.canvas_id, s.name, 1) = 0 as is_idle
          from wakeq.limit_states s
         where s.used_at < now() - interval '1 hour' and s.used_at > '-infinity'
         order by s.used_at limit 1000 for no key update skip locked
    loop
        looked_at := looked_at + 1;
        if state.is_idle then
            delete from wakeq.limit_states s where s.canvas_id = state.canvas_id and s.name = state.name;
        else
            update wakeq.limit_states s set used_at = date_trunc('hour', now())
             where s.canvas_id = state.canvas_id and s.name = state.name;
        end if;
    end loop;
    return looked_at;
end
$$;

revoke all on all functions in schema wakeq from public;
