-- Limits: how many events may run at a time, and how many may start in a period, over all workers.
--
-- A limit is a definition under a name: of a canvas, of a handler, or of keys that emits name. What
-- it counts is a counted name: each key has places and a rate of its own, under the definition with
-- its name or that of its family. This file keeps definitions, what is in use of them and who
-- waits, and 0019 decides which events start.
--
-- A place is held by a name, and no number is ever decremented. A holder counts only while its
-- event has a live claim (0001). So a worker that dies, an event that is removed and an answer that
-- comes late neither leak a place nor free one twice.

-- As an object key, since those of emits are no others; those of handlers have two names of 128
-- bytes.
create domain wakeq.limit_name as text collate "C" check (
    case when value like 'handler:%'
         then octet_length(value) <= 265 and value !~ '[^A-Za-z0-9_.:/-]' and strpos(substr(value, 9), ':') = 0
              and octet_length(split_part(substr(value, 9), '/', 1)) between 1 and 128
              and octet_length(split_part(substr(value, 9), '/', 2)) between 1 and 128
              and split_part(substr(value, 9), '/', 1) not in ('.', '..', 'QUEUE', 'CANVAS')
              and split_part(substr(value, 9), '/', 2) not in ('.', '..')
              and strpos(substr(value, 9 + strpos(substr(value, 9), '/')), '/') = 0
         else octet_length(value) between 1 and 200 and value !~ '[^A-Za-z0-9_.:@=+~-]'
              and value not in ('.', '..') and value not like 'canvas:%' end);

create table wakeq.limits (
    -- On the canvas ffffffff-ffff-ffff-ffff-ffffffffffff, which is no tenant's: of a handler, what
    -- holds for all canvases together; else what holds on each canvas that has no definition.
    canvas_id    uuid not null,
    -- 'canvas', 'handler:MODULE/NAME', a key, or the part of keys before their first ':'.
    name         wakeq.limit_name not null,
    -- How many events run at a time; null: any number.
    concurrency  integer check (concurrency between 1 and 1000),
    -- How many start in a period, evenly, but for `rate_burst` at once; null: any number.
    rate_count   integer check (rate_count between 1 and 1000000),
    rate_period  interval check (rate_period between interval '1 millisecond' and interval '31 days'),
    rate_burst   integer check (rate_burst between 1 and 1000000),
    -- What becomes of an event for which there is no room: it waits; it is dropped; it waits in the
    -- place of the one that has waited for longest; or it waits, and the oldest that runs is
    -- cancelled. One that has run before waits in any case.
    on_full      text not null default 'wait' check (on_full in ('wait', 'drop', 'replace', 'cancel')),
    -- Emits that name a key are refused while so many events wait.
    waiting_max  integer check (waiting_max between 1 and 10000),
    created_at   timestamptz not null default now(),
    created_by   text not null check (length(created_by) between 1 and 200),
    updated_at   timestamptz not null default now(),
    updated_by   text not null check (length(updated_by) between 1 and 200),
    constraint limits_pkey primary key (canvas_id, name),
    constraint limits_counts_something check (concurrency is not null or rate_count is not null),
    constraint limits_rate check (num_nonnulls(rate_count, rate_period, rate_burst) in (0, 3)),
    -- What a burst saves up has to be a time that can be taken from any other, and is how long a
    -- key's row in `limit_states` may say something.
    constraint limits_burst check (rate_burst * rate_period <= rate_count * interval '31 days')
);

-- Those that limit events which name no key. Claims ask whether their canvases have any
-- (`Sql::claim_rows`).
create index limits_of_all on wakeq.limits (canvas_id) where name = 'canvas' or name like 'handler:%';

-- What is in use of a counted name. The row is made when it is first counted, and deleted when it
-- has not been for an hour. It is written under its own lock, which is taken before that of any
-- event, and in the order of canvases and names.
create table wakeq.limit_states (
    canvas_id uuid not null,
    name      text collate "C" not null,
    -- The events that have its places. Only those with a live claim count.
    holders   uuid[] not null default '{}',
    -- The theoretical arrival time of its rate (GCRA): the next start is a burst before it.
    next_at   timestamptz not null default '-infinity',
    -- Up to when events that wait for the rate have been given a time to come back (`line_end`). It
    -- only spreads them: `next_at` decides.
    line_at   timestamptz not null default '-infinity',
    -- The rate by which both were set; with another one they begin anew.
    rate      text,
    -- The hour of its last use. It changes seldom, so that other writes are HOT updates.
    used_at   timestamptz not null default date_trunc('hour', now()),
    constraint limit_states_pkey primary key (canvas_id, name)
) with (
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

create index limit_states_used on wakeq.limit_states (used_at) where used_at > '-infinity';

-- The events that wait for room, each under one of its limits. The row is written under the lock of
-- its event, and goes with the event's claim or with the event.
create table wakeq.limit_waits (
    event_id  uuid not null,
    -- Where and under which name it is counted.
    canvas_id uuid not null,
    name      text collate "C" not null,
    -- Its place in the line: when it was due.
    due       timestamptz not null,
    since     timestamptz not null default clock_timestamp(),
    -- When it was told to come back, which may be a moment ahead; null until then. Nobody else gets
    -- the place for ten seconds, and whenever it comes, it may overtake those that wait.
    woken_at  timestamptz,
    -- Its start has been taken from the rates.
    is_paid   boolean not null default false,
    constraint limit_waits_pkey primary key (event_id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- Only for statements that name these conditions, and so not for those about ids (0001).
create index limit_waits_line on wakeq.limit_waits (canvas_id, name, due, event_id) where woken_at is null;
create index limit_waits_woken on wakeq.limit_waits (canvas_id, name, woken_at, event_id) where woken_at is not null;
-- For lists of what waits for a limit (`events_at_limit`), whose pages go on behind an event that
-- may have left the line.
create index limit_waits_events on wakeq.limit_waits (canvas_id, name, event_id) where due > '-infinity';

comment on column wakeq.events_v2.starts_at is
    'Null unless a limit has put the event off: when it may come back, or since when it waits (wakeq.limit_waits)';

-- Where the definition of a counted name may be, the one that counts first: of several that with
-- the most exact name, and of those the canvas's own before the operator's. That of a handler
-- counts where it is defined, and a name without a colon is of no family. Statements inline it.
create function wakeq.definition_places(canvas uuid, counted text)
returns table (nth integer, canvas_id uuid, name text) language sql immutable parallel safe as $$
    select p.nth, p.canvas_id, p.name
      from (values (1, canvas, counted), (2, 'ffffffff-ffff-ffff-ffff-ffffffffffff', counted),
                   (3, canvas, split_part(counted, ':', 1)),
                   (4, 'ffffffff-ffff-ffff-ffff-ffffffffffff', split_part(counted, ':', 1))) as p (nth, canvas_id, name)
     where p.nth = 1 or counted not like 'handler:%' and (p.nth = 2 or counted like '%:%')
$$;

-- The definition in force for a counted name.
create function wakeq.limit_on(canvas uuid, counted text) returns wakeq.limits language plpgsql stable as $$
declare
    found_one wakeq.limits;
begin
    select l.* into found_one
      from wakeq.definition_places(canvas, counted) as n
     cross join lateral (
           select x.* from wakeq.limits x where x.canvas_id = n.canvas_id and x.name = n.name offset 0) as l
     order by n.nth limit 1;
    return found_one;
end
$$;

-- The counted names of an event, in the order in which they are locked, with the definitions.
create function wakeq.limits_of(canvas uuid, module text, name text, options jsonb)
returns table (
    counted_canvas uuid, counted_name text, concurrency integer, rate_count integer, rate_period interval,
    rate_burst integer, on_full text, waiting_max integer)
language plpgsql stable as $$
#variable_conflict use_column
declare
    handler constant text := 'handler:' || limits_of.module || '/' || limits_of.name;
begin
    return query
    select distinct on (c.canvas_id, c.name collate "C") c.canvas_id, c.name, l.concurrency, l.rate_count,
           l.rate_period, l.rate_burst, l.on_full, l.waiting_max
      from (values (canvas, 'canvas'), (canvas, handler), ('ffffffff-ffff-ffff-ffff-ffffffffffff', handler)
             union all
            select canvas, k.key from unnest(wakeq.limit_keys_in(options)) as k (key)) as c (canvas_id, name)
     cross join lateral wakeq.definition_places(c.canvas_id, c.name) as n
     cross join lateral (
           select x.* from wakeq.limits x where x.canvas_id = n.canvas_id and x.name = n.name offset 0) as l
     order by c.canvas_id, c.name collate "C", n.nth;
end
$$;

-- Whether an event's claim is left to `wakeq.claim_limited`: it names a key, or a limit holds all
-- events of its handler or of its canvas.
create function wakeq.is_limited(canvas uuid, module text, name text, options jsonb)
returns boolean language plpgsql stable as $$
begin
    return coalesce(options ? 'limits', false) or exists (
        select from (values (canvas), ('ffffffff-ffff-ffff-ffff-ffffffffffff')) as c (canvas_id)
         cross join (values ('canvas'), ('handler:' || is_limited.module || '/' || is_limited.name)) as n (name)
         cross join lateral (
               select from wakeq.limits x where x.canvas_id = c.canvas_id and x.name = n.name offset 0) as l);
end
$$;

-- The keys among an event's options, each once. What another program wrote there and is none does
-- not count.
create function wakeq.limit_keys_in(options jsonb) returns text[] language plpgsql immutable as $$
begin
    if jsonb_typeof(options -> 'limits') = 'array' then
        return array(select distinct k.key from jsonb_array_elements_text(options -> 'limits') as k (key)
                      where wakeq.is_limit_key(k.key) limit 3);
    end if;
    return '{}';
end
$$;

-- Whether an emit may name this key (LimitKey of src/event/limit.rs).
create function wakeq.is_limit_key(key text) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return coalesce(octet_length(key) between 1 and 200 and key !~ '[^A-Za-z0-9_.:@=+~-]'
                    and key not in ('.', '..') and split_part(key, ':', 1) <> 'canvas'
                    and key not like 'handler:%', false);
end
$$;

-- Whether this is an array of one to three different keys.
create function wakeq.are_limit_keys(keys jsonb) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return jsonb_typeof(keys) = 'array' and jsonb_array_length(keys) between 1 and 3
       and (select count(distinct k.value) = count(*)
                   and bool_and(jsonb_typeof(k.value) = 'string' and wakeq.is_limit_key(k.value #>> '{}'))
              from jsonb_array_elements(keys) as k (value));
end
$$;

-- Those of these events that have a live claim, in the given order.
create function wakeq.live_claims(ids uuid[], lease interval) returns uuid[] language plpgsql volatile as $$
begin
    return array(
        select l.id from (select e.id from wakeq.events_v2 e
                           where e.id = any (ids) and e.locked_at >= clock_timestamp() - lease) as l
         order by array_position(ids, l.id));
end
$$;

-- How many of the events of a counted name wait, counted up to `most`.
create function wakeq.count_waits(canvas uuid, counted text, most integer) returns bigint
language plpgsql stable as $$
begin
    return (select count(*) from (
                (select from wakeq.limit_waits w
                  where w.canvas_id = canvas and w.name = counted and w.woken_at is null limit most)
                 union all
                (select from wakeq.limit_waits w
                  where w.canvas_id = canvas and w.name = counted and w.woken_at is not null limit most)
                limit most) as counted_ones);
end
$$;

-- Those of an emit's keys under which no more events may wait, with their limits.
create function wakeq.full_waits(canvas uuid, keys text[])
returns table (key text, limit_name text, waiting_max integer) language plpgsql stable as $$
begin
    return query
    select k.key, l.name::text, l.waiting_max
      from unnest(keys) as k (key) cross join lateral wakeq.limit_on(canvas, k.key) as l
     where l.waiting_max is not null and wakeq.count_waits(canvas, k.key, l.waiting_max) >= l.waiting_max;
end
$$;

-- Refuses an emit in SQL that names a key under which no more events may wait.
create function wakeq.check_waiting(canvas uuid, options jsonb) returns void language plpgsql stable as $$
declare
    reached record;
begin
    select * into reached from wakeq.full_waits(canvas, wakeq.limit_keys_in(options)) limit 1;
    if found then
        raise exception '% events of the canvas % wait for a place of the limit %, which is its waiting_max',
            reached.waiting_max, canvas, reached.key
            using
                errcode = 'configuration_limit_exceeded',
                hint = 'Emit again when some have started, or set a higher one (wakeq limits set).';
    end if;
end
$$;

-- How many places are kept for events that were told to come, counted up to `most`. Under another
-- rate than the one by which they were told (`is_anew`), none is kept for those that were to come
-- later.
create function wakeq.count_kept(canvas uuid, counted text, most integer, is_anew boolean) returns integer
language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
    latest constant timestamptz := case when is_anew then moment else 'infinity' end;
begin
    return (select count(*) from (
        select from wakeq.limit_waits w
         where w.canvas_id = canvas and w.name = counted and w.woken_at is not null
           and w.woken_at > moment - interval '10 s' and w.woken_at <= latest limit most) as counted_ones);
end
$$;

-- Up to when events have been given times to come back. Those that are gone, that were told
-- otherwise or have not come in ten seconds give up their times.
create function wakeq.line_end(state wakeq.limit_states, pace interval) returns timestamptz
language plpgsql volatile as $$
declare
    moment constant timestamptz := clock_timestamp();
begin
    return least(state.line_at, coalesce((
        select w.woken_at + pace from wakeq.limit_waits w
         where w.canvas_id = state.canvas_id and w.name = state.name and w.woken_at is not null
           and w.woken_at > moment - interval '10 s'
         order by w.woken_at desc limit 1), '-infinity'));
end
$$;

-- The rate of a definition as `limit_states` has it; null without one.
create function wakeq.rate_in(definition wakeq.limits) returns text language plpgsql immutable as $$
begin
    if definition.rate_count is null then
        return null;
    end if;
    return concat_ws('/', definition.rate_count, extract(epoch from definition.rate_period), definition.rate_burst);
end
$$;

-- The use of a counted name: how many run, the first 20 of them, or of those of one canvas, and
-- when a start is free.
create function wakeq.use_of(
    canvas uuid, counted text, lease interval, shown_to uuid default null, out running integer, out holders uuid[],
    out next_start timestamptz)
language plpgsql volatile as $$
declare
    definition constant wakeq.limits := wakeq.limit_on(canvas, counted);
    state      wakeq.limit_states;
begin
    select * into state from wakeq.limit_states s where s.canvas_id = canvas and s.name = counted;
    holders := wakeq.live_claims(coalesce(state.holders, '{}'), lease);
    running := cardinality(holders);
    holders := array(
        select h.id from unnest(holders) with ordinality as h (id, place)
         where shown_to is null
            or exists (select from wakeq.events_v2 e where e.id = h.id and e.canvas_id = shown_to offset 0)
         order by h.place limit 20);
    if definition.rate_count is not null then
        next_start := greatest(
            clock_timestamp(), wakeq.line_end(state, definition.rate_period / definition.rate_count),
            state.next_at - (definition.rate_burst - 1) * (definition.rate_period / definition.rate_count));
    end if;
end
$$;

-- The counted names of a definition that are in use, or have been in the last hour, in their order.
-- Only a name without a colon is that of a family, and what begins with `handler:` is no key.
create function wakeq.limit_uses(canvas uuid, limit_name text, after text, most integer, lease interval)
returns table (
    counted_canvas uuid, counted_name text, running integer, holders uuid[], waiting bigint, next_start timestamptz)
language plpgsql volatile as $$
begin
    return query
    select s.canvas_id, s.name, u.running, u.holders, wakeq.count_waits(s.canvas_id, s.name, 10000), u.next_start
      from (select o.canvas_id, o.name from wakeq.limit_states o
             where o.canvas_id = canvas and o.name = limit_name and o.name > coalesce(after, '')
             union all
            (select o.canvas_id, o.name from wakeq.limit_states o
              where o.canvas_id = canvas and o.name >= limit_name || ':' and o.name < limit_name || ';'
                and o.name > coalesce(after, '') and limit_name not like '%:%' and limit_name <> 'handler'
              order by o.name limit most)
             limit most) as s
     cross join lateral wakeq.use_of(s.canvas_id, s.name, lease) as u
     order by s.name;
end
$$;

-- For which limit an event waits, and what holds it up: of the holders those of its canvas.
-- `starts_at` is when it was told to come; without that, `next_start` is when its rate comes to it,
-- after those that wait before it, of which 10,000 are counted.
create function wakeq.wait_of(canvas uuid, event uuid, lease interval)
returns table (
    counted_canvas uuid, counted_name text, since timestamptz, starts_at timestamptz, holders uuid[], running integer,
    concurrency integer, next_start timestamptz)
language plpgsql volatile as $$
begin
    return query
    select w.canvas_id, w.name, w.since, w.woken_at, u.holders, u.running, l.concurrency,
           u.next_start + b.before * (l.rate_period / l.rate_count)
      from wakeq.limit_waits w
     cross join lateral wakeq.use_of(w.canvas_id, w.name, lease, wait_of.canvas) as u
     cross join lateral wakeq.limit_on(w.canvas_id, w.name) as l
     cross join lateral (
           select count(*) as before from (
               select from wakeq.limit_waits x
                where x.canvas_id = w.canvas_id and x.name = w.name and x.woken_at is null and w.woken_at is null
                  and l.rate_count is not null and (x.due, x.event_id) < (w.due, w.event_id)
                limit 10000) as counted_ones) as b
     where w.event_id = event
       and exists (select from wakeq.events_v2 e where e.id = event and e.canvas_id = canvas offset 0);
end
$$;

-- The next of a canvas's events that wait for one of its counted names, in the order of their ids.
create function wakeq.events_at_limit(canvas uuid, counted text, after_id uuid, look bigint)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select w.event_id from wakeq.limit_waits w
     cross join lateral (
           select from wakeq.events_v2 e where e.id = w.event_id and e.canvas_id = canvas offset 0) as e
     where w.canvas_id = canvas and w.name = counted and w.event_id > after_id and w.due > '-infinity'
     order by w.canvas_id, w.name, w.event_id limit look;
end
$$;

-- A limit in a call: its definition, what is in use, and what the call has changed.
create type wakeq.limit_use as (
    canvas_id   uuid,
    name        text,
    is_defined  boolean,
    concurrency integer,
    pace        interval,
    -- How long before its theoretical arrival time a start is free.
    ahead       interval,
    rate        text,
    on_full     text,
    -- Those that had places before the call, and those that got one in it.
    holders     uuid[],
    taken       uuid[],
    next_at     timestamptz,
    line_at     timestamptz,
    -- Events that were woken and have not come yet; whether others wait.
    woken       integer,
    is_waited   boolean,
    -- Whether the holders without a claim were dropped; whether the row has to be written; whether
    -- somebody waits although there is room.
    is_checked  boolean,
    is_changed  boolean,
    has_room    boolean
);

-- Locks the state of a counted name. The row may be missing, or go while this waits for it.
create function wakeq.lock_limit(canvas uuid, counted text) returns wakeq.limit_states
language plpgsql volatile as $$
declare
    state wakeq.limit_states;
begin
    loop
        select * into state from wakeq.limit_states s where s.canvas_id = canvas and s.name = counted
           for no key update;
        if found then
            return state;
        end if;
        insert into wakeq.limit_states (canvas_id, name) values (canvas, counted)
            on conflict (canvas_id, name) do nothing returning * into state;
        if found then
            return state;
        end if;
    end loop;
end
$$;

-- Locks a counted name, and returns what is in use of it. With another rate than before, the rate
-- begins anew: at once, but without a burst. Then those that were told to come later wait again,
-- and whoever has called this calls `wake_waiting`.
create function wakeq.lock_use(canvas uuid, counted text) returns wakeq.limit_use
language plpgsql volatile as $$
declare
    state      constant wakeq.limit_states := wakeq.lock_limit(canvas, counted);
    definition constant wakeq.limits := wakeq.limit_on(canvas, counted);
    used       wakeq.limit_use;
    moment     constant timestamptz := clock_timestamp();
begin
    used.canvas_id := canvas;
    used.name := counted;
    used.is_defined := definition.name is not null;
    used.concurrency := definition.concurrency;
    used.on_full := definition.on_full;
    used.holders := state.holders;
    used.taken := '{}';
    used.next_at := state.next_at;
    used.pace := definition.rate_period / definition.rate_count;
    used.line_at := case when used.pace is null then '-infinity' else wakeq.line_end(state, used.pace) end;
    used.ahead := (definition.rate_burst - 1) * used.pace;
    used.rate := wakeq.rate_in(definition);
    used.is_changed := state.rate is distinct from used.rate;
    used.has_room := false;
    if used.is_changed then
        used.next_at := coalesce(case when state.rate is not null then moment + used.ahead end, '-infinity');
        used.line_at := '-infinity';
        used.has_room := wakeq.call_back(canvas, counted);
    end if;
    used.is_waited := exists (select from wakeq.limit_waits w
                               where w.canvas_id = canvas and w.name = counted and w.woken_at is null);
    used.woken := case when definition.concurrency is null then 0
                       else wakeq.count_kept(canvas, counted, definition.concurrency, false) end;
    used.is_checked := false;
    return used;
end
$$;

-- Writes what a call has changed, under the lock.
create function wakeq.write_use(used wakeq.limit_use) returns void language plpgsql volatile as $$
begin
    update wakeq.limit_states s
       set holders = case when used.concurrency is null then '{}' else used.holders || used.taken end,
           next_at = used.next_at, line_at = used.line_at, rate = used.rate, used_at = date_trunc('hour', now())
     where s.canvas_id = used.canvas_id and s.name = used.name;
end
$$;

revoke all on all functions in schema wakeq from public;
