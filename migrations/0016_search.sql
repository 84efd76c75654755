-- Search: by which tags events are found, and which events a filter selects.
--
-- Lists, counts and operations on many events take a filter, EventFilter of src/event/filter.rs, as
-- its JSON. Statements find the rows that may meet it by an index, a bounded number at a time, and
-- ask the function `matches` about each. It finds nothing itself.

-- The tags of an event are in its options. Here is a row for each of them, with the order of the
-- lists, so that one range of the key has all events with a tag. Triggers write the rows with the
-- event, whoever emits, moves or ends it.
--
-- Ten partial indexes instead would cost the events that have no tags: each insert and each claim
-- would open ten indexes more and lock them (ADR 0088).
create table wakeq.event_tags (
    canvas_id   uuid not null,
    tag         text collate "C" not null check (octet_length(tag) between 1 and 100),
    module      wakeq.name not null,
    name        wakeq.name not null,
    delay_until timestamptz not null,
    event_id    uuid not null,
    constraint event_tags_pkey primary key (canvas_id, tag, module, name, delay_until, event_id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

create table wakeq.dead_event_tags (
    canvas_id uuid not null,
    tag       text collate "C" not null check (octet_length(tag) between 1 and 100),
    died_at   timestamptz not null,
    event_id  uuid not null,
    constraint dead_event_tags_pkey primary key (canvas_id, tag, died_at, event_id)
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- The tags among an event's options. What another program wrote there and is none counts as none.
create function wakeq.tags_in(options jsonb) returns text[] language plpgsql immutable as $$
begin
    if jsonb_typeof(options->'tags') = 'array' then
        return array(select a.tag from jsonb_array_elements_text(options->'tags') as a (tag)
                      where octet_length(a.tag) between 1 and 100);
    end if;
    return '{}';
end
$$;

-- Writes the rows of an event that has come, or has moved.
create function wakeq.add_tags(tagged wakeq.events_v2) returns void language plpgsql volatile as $$
begin
    insert into wakeq.event_tags (canvas_id, tag, module, name, delay_until, event_id)
    select tagged.canvas_id, a.tag, tagged.module, tagged.name, tagged.delay_until, tagged.id
      from unnest(wakeq.tags_in(tagged.options)) as a (tag)
        on conflict do nothing;
end
$$;

-- Deletes those of one that goes, or moves, one after the other, each by its whole key. Of "any"
-- the planner makes a filter while it knows nothing of the table, which then reads all tags of the
-- canvas.
create function wakeq.drop_tags(tagged wakeq.events_v2) returns void language plpgsql volatile as $$
declare
    was text;
begin
    foreach was in array wakeq.tags_in(tagged.options) loop
        delete from wakeq.event_tags t
         where t.canvas_id = tagged.canvas_id and t.tag = was and t.module = tagged.module and t.name = tagged.name
           and t.delay_until = tagged.delay_until and t.event_id = tagged.id;
    end loop;
end
$$;

-- What an event's options ask for beside its row, when it comes and when it goes: tags, and a batch
-- (0015). One trigger has both, because each costs every statement that inserts or deletes.
create function wakeq.options_came() returns trigger language plpgsql as $$
begin
    if new.options ->> 'batch' is not null then
        perform wakeq.join_batch(new);
    end if;
    if new.options->'tags' is not null then
        perform wakeq.add_tags(new);
    end if;
    return null;
end
$$;
create trigger events_v2_options_came after insert on wakeq.events_v2
    for each row when (new.options is not null) execute function wakeq.options_came();

-- The same when the event goes, however it ends. It also waits for no limit then (0018).
create function wakeq.options_went() returns trigger language plpgsql as $$
begin
    if old.options ->> 'batch' is not null then
        perform wakeq.leave_batch(old);
    end if;
    if old.options->'tags' is not null then
        perform wakeq.drop_tags(old);
    end if;
    if old.starts_at is not null then
        delete from wakeq.limit_waits w where w.event_id = old.id;
    end if;
    return null;
end
$$;
create trigger events_v2_options_went after delete on wakeq.events_v2
    for each row when (old.options is not null or old.starts_at is not null) execute function wakeq.options_went();

-- Moves the rows of an event. A claim writes none of the columns that the trigger names.
create function wakeq.tags_moved() returns trigger language plpgsql as $$
begin
    perform wakeq.drop_tags(old), wakeq.add_tags(new);
    return null;
end
$$;
create trigger events_v2_tags_moved after update of options, delay_until on wakeq.events_v2
    for each row when (
        (old.options is not null or new.options is not null)
        and (old.delay_until <> new.delay_until or old.options->'tags' is distinct from new.options->'tags'))
    execute function wakeq.tags_moved();

-- The same for dead events, whatever happens to them.
create function wakeq.dead_tags_changed() returns trigger language plpgsql as $$
declare
    was text;
begin
    if tg_op <> 'INSERT' then
        foreach was in array wakeq.tags_in(old.options) loop
            delete from wakeq.dead_event_tags t
             where t.canvas_id = old.canvas_id and t.tag = was and t.died_at = old.died_at and t.event_id = old.id;
        end loop;
    end if;
    if tg_op <> 'DELETE' then
        insert into wakeq.dead_event_tags (canvas_id, tag, died_at, event_id)
        select new.canvas_id, a.tag, new.died_at, new.id from unnest(wakeq.tags_in(new.options)) as a (tag)
            on conflict do nothing;
    end if;
    return null;
end
$$;
create trigger dead_events_tags_came after insert on wakeq.dead_events
    for each row when (new.options is not null) execute function wakeq.dead_tags_changed();
create trigger dead_events_tags_went after delete on wakeq.dead_events
    for each row when (old.options is not null) execute function wakeq.dead_tags_changed();
create trigger dead_events_tags_moved after update of options, died_at on wakeq.dead_events
    for each row when (
        (old.options is not null or new.options is not null)
        and (old.died_at <> new.died_at or old.options->'tags' is distinct from new.options->'tags'))
    execute function wakeq.dead_tags_changed();

-- Whether a value, as JSON text, has this scalar at the place to which the path leads. A path has
-- no wildcards, so it costs no more than to read the value. One that is no jsonb has nothing there.
create function wakeq.value_has(value text, asked jsonb) returns boolean language plpgsql immutable as $$
begin
    return coalesce(
        value::jsonb #> array(select jsonb_array_elements_text(asked->'path')) = asked->'equals', false);
exception when data_exception or program_limit_exceeded then
    return false;
end
$$;

-- Whether an event meets every condition of a filter. A condition on what the event does not have
-- (null) is not met. Of what is not a filter no event is said to meet it. What costs most is asked
-- last: the value is read only where everything else is met.
create function wakeq.matches(
    asked jsonb, module text, name text, modifier text, state text, worker text, tags jsonb,
    emitted timestamptz, due timestamptz, died timestamptz, error_group uuid, error text, value text, object text,
    batch text, waits_for text default null)
returns boolean language plpgsql stable as $$
begin
    return jsonb_typeof(asked) = 'object'
       and coalesce(module = asked->>'module', not asked ? 'module')
       and coalesce(name = asked->>'name', not asked ? 'name')
       and coalesce(modifier = asked->>'modifier', not asked ? 'modifier')
       and coalesce(asked->'states' ? state, not asked ? 'states')
       and coalesce(worker = asked->>'worker', not asked ? 'worker')
       and coalesce(waits_for = asked->>'waits_for', not asked ? 'waits_for')
       and coalesce(tags @> (asked->'tags'), not asked ? 'tags')
       and coalesce(object = asked->>'object', not asked ? 'object')
       and coalesce(batch = asked->>'batch', not asked ? 'batch')
       and coalesce(emitted >= (asked->>'emitted_since')::timestamptz, not asked ? 'emitted_since')
       and coalesce(emitted < (asked->>'emitted_before')::timestamptz, not asked ? 'emitted_before')
       and coalesce(due >= (asked->>'due_since')::timestamptz, not asked ? 'due_since')
       and coalesce(due < (asked->>'due_before')::timestamptz, not asked ? 'due_before')
       and coalesce(died >= (asked->>'died_since')::timestamptz, not asked ? 'died_since')
       and coalesce(died < (asked->>'died_before')::timestamptz, not asked ? 'died_before')
       and coalesce(error_group = (asked->>'error_group')::uuid, not asked ? 'error_group')
       and coalesce(strpos(error, asked->>'error_text') > 0, not asked ? 'error_text')
       and coalesce(strpos(value, asked->>'value_text') > 0, not asked ? 'value_text')
       and (not asked ? 'value' or coalesce(wakeq.value_has(value, asked->'value'), false));
end
$$;

-- Up to `look` events of a canvas that have a tag and are after a place in the list by handler and
-- due time, up to the last handler, in the order of the list.
create function wakeq.tagged_events(
    canvas uuid, tag text, until_module text, until_name text,
    after_module text, after_name text, after_due timestamptz, after_id uuid, look bigint)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select t.event_id from wakeq.event_tags t
     where t.canvas_id = canvas and t.tag = tagged_events.tag
       and (t.module, t.name, t.delay_until, t.event_id) > (after_module, after_name, after_due, after_id)
       and (t.module, t.name) <= (until_module, until_name)
     order by t.canvas_id, t.tag, t.module, t.name, t.delay_until, t.event_id limit look;
end
$$;

-- Up to `look` events of a canvas on an object, but no copies, that come after a link of its chain,
-- in the order of the chain. Read from the index of links, in which `prev` grows with `seq`.
create function wakeq.events_of_object(canvas uuid, object text, after_prev bigint, look bigint)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select e.id from wakeq.events_v2 e
     where e.canvas_id = canvas and greatest(e.object, e.object) = events_of_object.object and e.queue is null
       and e.prev > after_prev
     order by e.canvas_id, greatest(e.object, e.object), e.prev limit look;
end
$$;

-- Up to `look` members of a batch that are left, after an id, in the order of their ids. The name
-- is a range and not a constant: of a constant the order would be that of the ids, which the
-- primary key has as well. The index has the collation of the database.
create function wakeq.events_of_batch(canvas uuid, batch text, after_id uuid, look bigint)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select e.id from wakeq.events_v2 e
     where e.canvas_id = canvas and e.options ->> 'batch' is not null
       and (e.options ->> 'batch', e.id) > (events_of_batch.batch collate "default", after_id)
       and e.options ->> 'batch' <= events_of_batch.batch collate "default"
     order by e.canvas_id, e.options ->> 'batch', e.id limit look;
end
$$;

-- Up to `look` dead events of a canvas that have a tag and are after a place in the list of dead
-- events, the latest first.
create function wakeq.tagged_dead(canvas uuid, tag text, after_died timestamptz, after_id uuid, look bigint)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select t.event_id from wakeq.dead_event_tags t
     where t.canvas_id = canvas and t.tag = tagged_dead.tag and (t.died_at, t.event_id) < (after_died, after_id)
     order by t.canvas_id desc, t.tag desc, t.died_at desc, t.event_id desc limit look;
end
$$;

-- Up to `look` events of a canvas, or of one of its handlers, that are kept after they have ended
-- with one of these outcomes, after a place in their list and since a moment, the latest first.
-- They are merged from a list of each outcome, which is a range of an index, and of which no more
-- is read than is returned. Those whose time is over are among them until their partition goes,
-- since a page that skipped them might read a million rows. A plan may be made while the table is
-- empty and used when it is full, so sorting is off, and only one index has the order.
create function wakeq.ended_after(
    canvas uuid, outcomes text[], module text, name text, since timestamptz, after_ended timestamptz, after_id uuid,
    look bigint)
returns setof wakeq.ended_events
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    week constant timestamptz := date_trunc('week', now(), 'UTC');
begin
    if ended_after.name is null then
        return query
        (select e.* from wakeq.ended_events e
          where e.canvas_id = canvas and greatest(e.outcome, e.outcome) = 'completed'
            and 'completed' = any (outcomes) and e.kept_until >= week
            and (e.ended_at, e.id) < (after_ended, after_id) and e.ended_at >= since
            and e.ended_at > '-infinity'
          order by e.ended_at desc, e.id desc limit look)
         union all
        (select e.* from wakeq.ended_events e
          where e.canvas_id = canvas and greatest(e.outcome, e.outcome) = 'failed'
            and 'failed' = any (outcomes) and e.kept_until >= week
            and (e.ended_at, e.id) < (after_ended, after_id) and e.ended_at >= since
            and e.ended_at > '-infinity'
          order by e.ended_at desc, e.id desc limit look)
         union all
        (select e.* from wakeq.ended_events e
          where e.canvas_id = canvas and greatest(e.outcome, e.outcome) = 'cancelled'
            and 'cancelled' = any (outcomes) and e.kept_until >= week
            and (e.ended_at, e.id) < (after_ended, after_id) and e.ended_at >= since
            and e.ended_at > '-infinity'
          order by e.ended_at desc, e.id desc limit look)
         order by ended_at desc, id desc limit look;
    else
        return query
        (select e.* from wakeq.ended_events e
          where e.canvas_id = canvas and e.module = ended_after.module and e.name = ended_after.name
            and e.outcome = 'completed' and 'completed' = any (outcomes) and e.kept_until >= week
            and (e.ended_at, e.id) < (after_ended, after_id) and e.ended_at >= since
            and e.ended_at > '-infinity'
          order by e.ended_at desc, e.id desc limit look)
         union all
        (select e.* from wakeq.ended_events e
          where e.canvas_id = canvas and e.module = ended_after.module and e.name = ended_after.name
            and e.outcome = 'failed' and 'failed' = any (outcomes) and e.kept_until >= week
            and (e.ended_at, e.id) < (after_ended, after_id) and e.ended_at >= since
            and e.ended_at > '-infinity'
          order by e.ended_at desc, e.id desc limit look)
         union all
        (select e.* from wakeq.ended_events e
          where e.canvas_id = canvas and e.module = ended_after.module and e.name = ended_after.name
            and e.outcome = 'cancelled' and 'cancelled' = any (outcomes) and e.kept_until >= week
            and (e.ended_at, e.id) < (after_ended, after_id) and e.ended_at >= since
            and e.ended_at > '-infinity'
          order by e.ended_at desc, e.id desc limit look)
         order by ended_at desc, id desc limit look;
    end if;
end
$$;

revoke all on all functions in schema wakeq from public;
