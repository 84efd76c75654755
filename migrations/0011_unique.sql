-- Unique keys: of the events of a handler on a canvas, at most one has a given key at a time.
--
-- The event's own row has the key, and a partial unique index of `events_v2` (0001) holds it. So
-- the event's end frees the key without another statement, and an event without a key has no entry
-- there. `unique_for` says how long the event has its key: while it waits, until it has ended, or
-- also for some time after it was due. Only the last outlives the row, and is in `unique_keys`.
--
-- A claim does not touch the key, because every claim is a HOT update. An event that has its key
-- only while it waits loses it to the first emit that finds it claimed. If such an event is retried
-- afterwards, it waits without a key. One that was cancelled while it ran, and runs no more, is as
-- good as gone: it loses any key.
--
-- Everything here counts in READ COMMITTED: each statement of a function sees what was committed
-- before it. Where something changes between two of them, the function begins anew. A key beside an
-- id is compared by "is not distinct from", for which no index will do: the row is found by its id
-- (docs/design/statements.md).
--
-- Ids that callers choose (0001) are the other way to emit twice without harm. What is refused of
-- them is at the end.

-- As an idempotency key.
create domain wakeq.unique_key as text check (
    octet_length(value) between 1 and 255 and value !~ '[^\x21-\x7e]');

-- Keys that stay taken after their events have ended.
create table wakeq.unique_keys (
    canvas_id uuid not null,
    module    wakeq.name not null,
    name      wakeq.name not null,
    key       wakeq.unique_key not null,
    -- The event that has the key, or had it.
    event_id  uuid not null,
    until     timestamptz not null check (until >= '0001-01-01Z' and until < '10000-01-01Z'),
    primary key (canvas_id, module, name, key)
);

create index unique_keys_until on wakeq.unique_keys (until);

-- An event with a unique key that is to be emitted.
create type wakeq.unique_event as (
    id           uuid,
    canvas_id    uuid,
    module       text,
    name         text,
    modifier     text,
    value        text,
    due          timestamptz,
    traceparent  text,
    key          text,
    -- As `unique_for` of `events_v2`.
    held_for     interval,
    -- What becomes of an event that waits with the key: 'keep' leaves it as it is, 'replace' gives
    -- it the value and the due time of this one, 'postpone' the value, and a due time that is
    -- `postponed_by` from now, but at most `at_most` after it was emitted.
    on_conflict  text,
    postponed_by interval,
    at_most      interval,
    -- As of `events_v2`.
    options      jsonb
);

-- Keeps a key taken until some time after this due time; false if it is another event's.
create function wakeq.remember_key(event wakeq.unique_event, holder uuid, due timestamptz, held_for interval)
returns boolean language plpgsql volatile as $$
begin
    insert into wakeq.unique_keys as k (canvas_id, module, name, key, event_id, until)
    values (event.canvas_id, event.module, event.name, event.key, remember_key.holder,
            least(greatest(remember_key.due, clock_timestamp()) + remember_key.held_for, '9999-12-31 23:59:59Z'))
        on conflict (canvas_id, module, name, key)
        do update set event_id = excluded.event_id, until = excluded.until
                where k.until <= clock_timestamp() or k.event_id = excluded.event_id;
    return found;
end
$$;

-- The event that had a key, if it is remembered.
create function wakeq.remembered_key(event wakeq.unique_event) returns uuid language plpgsql stable as $$
begin
    return (select k.event_id from wakeq.unique_keys k
             where k.canvas_id = event.canvas_id and k.module = event.module and k.name = event.name
               and k.key = event.key and k.until > clock_timestamp());
end
$$;

-- Inserts an event and its copies; false if the key has been taken meanwhile. It may have been
-- taken and its event have ended, so that only what is remembered shows it. `ids` are those of all
-- rows, and `queues` the queues of those that are copies, at the same positions.
create function wakeq.insert_unique(
    event wakeq.unique_event, ids uuid[], queues text[], horizon interval, grace interval)
returns boolean language plpgsql volatile as $$
declare
    is_free boolean;
begin
    insert into wakeq.events_v2
        (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, unique_key, unique_for,
         options)
    values (event.id, event.canvas_id, event.module, event.name, event.modifier, event.value, event.due,
            wakeq.wake_at(event.due, statement_timestamp(), horizon, grace), event.traceparent,
            event.key::wakeq.unique_key, event.held_for, event.options)
        on conflict (canvas_id, module, name, unique_key) where unique_key is not null do nothing;
    if not found then
        return false;
    end if;
    if event.held_for > interval '0' then
        is_free := wakeq.remember_key(event, event.id, event.due, event.held_for);
    else
        is_free := wakeq.remembered_key(event) is null;
    end if;
    if not is_free then
        delete from wakeq.events_v2 e where e.id = event.id;
        return false;
    end if;
    if cardinality(ids) > 1 then
        insert into wakeq.events_v2
            (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, queue, origin)
        select c.id, event.canvas_id, event.module, event.name, event.modifier, event.value, event.due,
               wakeq.wake_at(event.due, statement_timestamp(), horizon, grace), event.traceparent, c.queue, event.id
          from unnest(insert_unique.ids, insert_unique.queues) as c (id, queue) where c.queue is not null;
    end if;
    return true;
end
$$;

-- Replaces or postpones an event that waits with a key. It begins anew, since its value is another
-- one: without the retries and losses of the value before. `due` is null if it has been claimed or
-- has ended meanwhile, or waits only to be deleted because it was cancelled while it ran. A
-- notification of it is on its way already, unless it is due earlier than before or was too far off
-- for one; `is_due_soon` says so. One that waits for a limit keeps its place in the line, unless it
-- names other keys now or is due later. If a place was kept for it there, `room` names the limit.
create function wakeq.change_unique(
    event wakeq.unique_event, holder uuid, horizon interval, grace interval,
    out due timestamptz, out is_due_soon boolean, out room text)
language plpgsql volatile as $$
declare
    waits   record;
    near    timestamptz;
    -- Whether it has to ask its limits anew, of which nobody tells it.
    is_anew boolean;
begin
    select e.delay_until, e.enqueued_at, e.notify_at, e.unique_for, e.claims, e.starts_at,
           e.options -> 'limits' as keys
      into waits
      from wakeq.events_v2 e
     where e.id = change_unique.holder and e.unique_key is not distinct from event.key and e.locked_at is null
       and e.cancelled_by is null
       for no key update;
    if not found then
        return;
    end if;
    near := clock_timestamp() + horizon;
    due := case event.on_conflict
           when 'replace' then event.due
           else greatest(waits.delay_until,
                         least(clock_timestamp() + event.postponed_by, waits.enqueued_at + event.at_most)) end;
    is_anew := waits.starts_at is not null
        and (due > clock_timestamp() or waits.keys is distinct from event.options -> 'limits');
    if is_anew then
        delete from wakeq.limit_waits w where w.event_id = change_unique.holder
        returning case when w.woken_at is not null then w.canvas_id || '/' || w.name end into room;
    end if;
    is_due_soon := waits.notify_at is not null and due <= near
        and (waits.delay_until > near or due < waits.delay_until or is_anew);
    update wakeq.events_v2 e
       set modifier = event.modifier, value = event.value, traceparent = event.traceparent, options = event.options,
           delay_until = change_unique.due,
           starts_at = case when not is_anew then waits.starts_at end,
           -- Never later than it was promised, unless it is due later: a steady stream of emits
           -- would put off for ever what a lost notification leaves to the promise.
           notify_at = case when waits.notify_at is not null
                            then least(
                                greatest(waits.notify_at, change_unique.due),
                                wakeq.wake_at(change_unique.due, statement_timestamp(), horizon, grace)) end,
           probes = 0, retries = 0, losses = 0, last_error = null, postponed_since = null
     where e.id = change_unique.holder;
    if waits.unique_for > interval '0' then
        perform wakeq.remember_key(event, change_unique.holder, change_unique.due, waits.unique_for);
    end if;
    -- What an attempt has left was about the value before.
    if waits.claims > 0 then
        delete from wakeq.checkpoints c where c.canvas_id = event.canvas_id and c.event_id = change_unique.holder;
    end if;
end
$$;

-- Whether the event that has a key gives it to the next: it was cancelled while it ran and runs no
-- more, or it has its key only until it starts, and has been claimed.
create function wakeq.loses_key(locked_at timestamptz, is_cancelled boolean, unique_for interval)
returns boolean language plpgsql stable as $$
begin
    if locked_at is null then
        return is_cancelled;
    end if;
    return unique_for is null
        or is_cancelled and locked_at < clock_timestamp() - wakeq.duration_of('lease', interval '1 minute');
end
$$;

-- Emits an event with a unique key, or does what it says to the event that has the key. Returns the
-- id of the event that stands, and what was done: 'inserted', 'kept', 'replaced' or 'postponed';
-- then also when it is due, and whether its notification has to be published now. `room` names the
-- limit, as canvas and name, for which `wake_waiting` has to be called after the commit.
--
-- `goes_on` says that what the caller has written is not committed yet. An event that is kept must
-- not start before that, or it would not see it and nothing would come after it: it stays locked.
-- One that has its key until it has ended may have started long ago, so it is not locked.
create function wakeq.write_unique(
    event wakeq.unique_event, ids uuid[], queues text[], goes_on boolean, horizon interval, grace interval,
    out event_id uuid, out outcome text, out due timestamptz, out is_due_soon boolean, out room text)
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    holder record;
begin
    is_due_soon := false;
    for round in 1..20 loop
        select e.id, e.locked_at is null as waits, e.unique_for is null as only_waiting,
               wakeq.loses_key(e.locked_at, e.cancelled_by is not null, e.unique_for) as loses_it
          into holder
          from wakeq.events_v2 e
         where e.canvas_id = event.canvas_id and e.module = event.module and e.name = event.name
           and e.unique_key = event.key;
        event_id := holder.id;
        if event_id is null then
            event_id := wakeq.remembered_key(event);
            if event_id is not null then
                outcome := 'kept';
                return;
            elsif wakeq.insert_unique(event, ids, queues, horizon, grace) then
                event_id := event.id;
                outcome := 'inserted';
                due := event.due;
                is_due_soon := due <= clock_timestamp() + horizon;
                return;
            end if;
        elsif holder.loses_it then
            update wakeq.events_v2 e set unique_key = null
             where e.id = holder.id and e.unique_key is not distinct from event.key
               and wakeq.loses_key(e.locked_at, e.cancelled_by is not null, e.unique_for);
        elsif holder.waits and event.on_conflict <> 'keep' then
            select c.due, c.is_due_soon, c.room into due, is_due_soon, room
              from wakeq.change_unique(event, holder.id, horizon, grace) as c;
            if due is not null then
                outcome := case event.on_conflict when 'replace' then 'replaced' else 'postponed' end;
                return;
            end if;
        else
            if goes_on and holder.only_waiting then
                perform from wakeq.events_v2 e
                  where e.id = holder.id and e.unique_key is not distinct from event.key and e.locked_at is null
                    and e.cancelled_by is null
                    for no key update;
                continue when not found;
            end if;
            outcome := 'kept';
            return;
        end if;
    end loop;
    raise exception 'the unique key % changes hands all the time', event.key using errcode = 'serialization_failure';
end
$$;

-- Refuses a key, or what to do with it, that is not one.
create function wakeq.check_unique(
    unique_key text, until text, remember interval, on_conflict text, postpone_by interval, at_most interval)
returns void language plpgsql immutable as $$
begin
    if (check_unique.until in ('started', 'ended')) is not true
        or (check_unique.on_conflict in ('keep', 'replace', 'postpone')) is not true
    then
        raise exception 'a key is unique until its event has started or ended, and keeps, replaces or postpones it'
            using
                errcode = 'invalid_parameter_value',
                hint = 'until is started or ended, and on_conflict is keep, replace or postpone.';
    end if;
    if check_unique.remember is not null
        and (check_unique.until <> 'ended'
             or (check_unique.remember > interval '0' and check_unique.remember <= interval '366 days') is not true)
    then
        raise exception 'a key is remembered for up to 366 days, after its event has ended'
            using
                errcode = 'invalid_parameter_value',
                hint = 'Pass remember => ''1 hour'', and until => ''ended'' or none.';
    end if;
    if check_unique.on_conflict = 'postpone'
        and (check_unique.postpone_by > interval '0' and check_unique.at_most >= check_unique.postpone_by
             and check_unique.at_most <= interval '36600 days') is not true
        or check_unique.on_conflict <> 'postpone' and num_nonnulls(check_unique.postpone_by, check_unique.at_most) > 0
    then
        raise exception 'to postpone takes how long, and the longest wait'
            using
                errcode = 'invalid_parameter_value',
                hint = 'Pass on_conflict => ''postpone'', postpone_by => ''5 s'', at_most => ''1 min'', or none.';
    end if;
    if (octet_length(check_unique.unique_key) between 1 and 255
        and check_unique.unique_key !~ '[^\x21-\x7e]') is not true
    then
        raise exception 'a unique key has 1 to 255 visible ASCII characters, without spaces'
            using
                errcode = 'invalid_parameter_value',
                hint = 'Shorten or encode it, or call wakeq.emit for an event without a key.';
    end if;
end
$$;

-- Emits an event with a unique key in the caller's transaction: as wakeq.emit, whose arguments are
-- explained there, for callers with the same rights.
--
-- The key is taken until its event has 'started', which is the default, or has 'ended', and with
-- `remember` also for this long after it was due. If the key is taken, the event that has it is
-- kept, replaced or postponed. To postpone also delays the first event by `postpone_by`, unless
-- that has a `due` of its own.
--
-- Returns the id of the event that stands, what was done ('inserted', 'kept', 'replaced' or
-- 'postponed'), when it is due if that is known, and the body of its notification.
create function wakeq.emit_unique(
    handler     text,
    value       text,
    unique_key  text,
    until       text default null,
    remember    interval default null,
    on_conflict text default 'keep',
    postpone_by interval default null,
    at_most     interval default null,
    canvas      uuid default '00000000-0000-0000-0000-000000000000',
    module      text default 'WORKER',
    modifier    text default '_',
    due         timestamptz default null,
    traceparent text default null,
    notified    boolean default false,
    options     jsonb default null,
    out event_id     uuid,
    out outcome      text,
    out due_at       timestamptz,
    out notification text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    event wakeq.unique_event;
    grace interval := interval '0';
begin
    perform wakeq.check_emit(emit_unique.canvas, emit_unique.module, emit_unique.value);
    until := coalesce(until, case when remember is null then 'started' else 'ended' end);
    perform wakeq.check_unique(unique_key, until, remember, on_conflict, postpone_by, at_most);
    if emit_unique.options ->> 'batch' is not null then
        raise exception 'an event of a batch can''t have a unique key'
            using errcode = 'invalid_parameter_value', hint = 'Leave one of them out.';
    end if;
    event := row(gen_random_uuid(), emit_unique.canvas, emit_unique.module, handler, emit_unique.modifier,
                 emit_unique.value, coalesce(emit_unique.due, clock_timestamp() + coalesce(postpone_by, interval '0')),
                 emit_unique.traceparent, unique_key,
                 case until when 'ended' then coalesce(remember, interval '0') end, on_conflict, postpone_by, at_most,
                 wakeq.kept_options(emit_unique.options));
    if emit_unique.options ? 'limits' then
        perform wakeq.check_waiting(emit_unique.canvas, emit_unique.options);
    end if;
    if notified then
        grace := wakeq.duration_of('grace', interval '30 seconds');
    end if;
    select w.event_id, w.outcome, w.due into emit_unique.event_id, emit_unique.outcome, due_at
      from wakeq.write_unique(event, '{}', '{}', true, wakeq.duration_of('horizon', interval '10 minutes'), grace) as w;
    notification := format('{"id":"%s","canvasID":"%s"%s}', emit_unique.event_id, emit_unique.canvas,
                           case when emit_unique.options @> '{"urgent": true}' then ',"urgent":true' end);
end
$$;

-- Refuses events with chosen ids that were emitted for other handlers, the first one of them. The
-- insert before this has found the ids known, and has waited for those that had them. The session
-- of a caller may keep a plan from when the tables were empty.
create function wakeq.check_repeats(canvases uuid[], ids uuid[], modules text[], names text[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    taken record;
begin
    select asked.id, known.module, known.name into taken
      from unnest(canvases, ids, modules, names) with ordinality as asked (canvas_id, id, module, name, position)
           cross join lateral (
               (select e.module::text, e.name::text from wakeq.events_v2 e
                 where e.id = asked.id and e.canvas_id = asked.canvas_id offset 0)
                union all
               (select d.module::text, d.name::text from wakeq.dead_events d
                 where d.id = asked.id and d.canvas_id = asked.canvas_id offset 0)
                union all
               (select i.module::text, i.name::text from wakeq.emitted_ids i
                 where i.id = asked.id and i.canvas_id = asked.canvas_id offset 0)) as known (module, name)
     where known.module <> asked.module or known.name <> asked.name
     order by asked.position limit 1;
    if found then
        raise exception 'the id was chosen before, for the handler %/%, whose event is %',
            taken.module, taken.name, taken.id
            using
                errcode = 'unique_violation', schema = 'wakeq', table = 'emitted_ids',
                constraint = 'emitted_ids_one_handler', detail = format('%s %s %s', taken.id, taken.module, taken.name),
                hint = 'Choose another id for another event.';
    end if;
end
$$;

revoke all on all functions in schema wakeq from public;
