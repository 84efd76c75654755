-- Search: by which tags events are found, and which events a filter selects.
--
-- Lists, counts and operations on many events take a filter, EventFilter of src/event/filter.rs, as
-- its JSON. Statements find the rows that may meet it by an index, a bounded number at a time, and
-- ask the function `matches` about each. It finds nothing itself.

-- The tags of an event are in its options. There is an index for each place among them, so that one
-- range of each has all events with a tag, in the order of the lists. An event without a tag at
-- that place has no entry: what is not tagged pays for ten conditions, which are false. No index
-- mentions what a claim writes.
create index events_v2_tag_0 on wakeq.events_v2 (canvas_id, (options #>> '{tags,0}'), module, name, delay_until, id)
    where options #>> '{tags,0}' is not null;
create index events_v2_tag_1 on wakeq.events_v2 (canvas_id, (options #>> '{tags,1}'), module, name, delay_until, id)
    where options #>> '{tags,1}' is not null;
create index events_v2_tag_2 on wakeq.events_v2 (canvas_id, (options #>> '{tags,2}'), module, name, delay_until, id)
    where options #>> '{tags,2}' is not null;
create index events_v2_tag_3 on wakeq.events_v2 (canvas_id, (options #>> '{tags,3}'), module, name, delay_until, id)
    where options #>> '{tags,3}' is not null;
create index events_v2_tag_4 on wakeq.events_v2 (canvas_id, (options #>> '{tags,4}'), module, name, delay_until, id)
    where options #>> '{tags,4}' is not null;
create index events_v2_tag_5 on wakeq.events_v2 (canvas_id, (options #>> '{tags,5}'), module, name, delay_until, id)
    where options #>> '{tags,5}' is not null;
create index events_v2_tag_6 on wakeq.events_v2 (canvas_id, (options #>> '{tags,6}'), module, name, delay_until, id)
    where options #>> '{tags,6}' is not null;
create index events_v2_tag_7 on wakeq.events_v2 (canvas_id, (options #>> '{tags,7}'), module, name, delay_until, id)
    where options #>> '{tags,7}' is not null;
create index events_v2_tag_8 on wakeq.events_v2 (canvas_id, (options #>> '{tags,8}'), module, name, delay_until, id)
    where options #>> '{tags,8}' is not null;
create index events_v2_tag_9 on wakeq.events_v2 (canvas_id, (options #>> '{tags,9}'), module, name, delay_until, id)
    where options #>> '{tags,9}' is not null;
create index dead_events_tag_0 on wakeq.dead_events (canvas_id, (options #>> '{tags,0}'), died_at, id)
    where options #>> '{tags,0}' is not null;
create index dead_events_tag_1 on wakeq.dead_events (canvas_id, (options #>> '{tags,1}'), died_at, id)
    where options #>> '{tags,1}' is not null;
create index dead_events_tag_2 on wakeq.dead_events (canvas_id, (options #>> '{tags,2}'), died_at, id)
    where options #>> '{tags,2}' is not null;
create index dead_events_tag_3 on wakeq.dead_events (canvas_id, (options #>> '{tags,3}'), died_at, id)
    where options #>> '{tags,3}' is not null;
create index dead_events_tag_4 on wakeq.dead_events (canvas_id, (options #>> '{tags,4}'), died_at, id)
    where options #>> '{tags,4}' is not null;
create index dead_events_tag_5 on wakeq.dead_events (canvas_id, (options #>> '{tags,5}'), died_at, id)
    where options #>> '{tags,5}' is not null;
create index dead_events_tag_6 on wakeq.dead_events (canvas_id, (options #>> '{tags,6}'), died_at, id)
    where options #>> '{tags,6}' is not null;
create index dead_events_tag_7 on wakeq.dead_events (canvas_id, (options #>> '{tags,7}'), died_at, id)
    where options #>> '{tags,7}' is not null;
create index dead_events_tag_8 on wakeq.dead_events (canvas_id, (options #>> '{tags,8}'), died_at, id)
    where options #>> '{tags,8}' is not null;
create index dead_events_tag_9 on wakeq.dead_events (canvas_id, (options #>> '{tags,9}'), died_at, id)
    where options #>> '{tags,9}' is not null;

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
    emitted timestamptz, due timestamptz, died timestamptz, error text, value text)
returns boolean language plpgsql stable as $$
begin
    return jsonb_typeof(asked) = 'object'
       and coalesce(module = asked->>'module', not asked ? 'module')
       and coalesce(name = asked->>'name', not asked ? 'name')
       and coalesce(modifier = asked->>'modifier', not asked ? 'modifier')
       and coalesce(asked->'states' ? state, not asked ? 'states')
       and coalesce(worker = asked->>'worker', not asked ? 'worker')
       and coalesce(tags @> (asked->'tags'), not asked ? 'tags')
       and coalesce(emitted >= (asked->>'emitted_since')::timestamptz, not asked ? 'emitted_since')
       and coalesce(emitted < (asked->>'emitted_before')::timestamptz, not asked ? 'emitted_before')
       and coalesce(due >= (asked->>'due_since')::timestamptz, not asked ? 'due_since')
       and coalesce(due < (asked->>'due_before')::timestamptz, not asked ? 'due_before')
       and coalesce(died >= (asked->>'died_since')::timestamptz, not asked ? 'died_since')
       and coalesce(died < (asked->>'died_before')::timestamptz, not asked ? 'died_before')
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
    select t.id from (
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,0}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,1}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,2}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,3}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,4}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,5}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,6}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,7}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,8}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look) union all
        (select e.module, e.name, e.delay_until, e.id from wakeq.events_v2 e
          where e.canvas_id = canvas and e.options #>> '{tags,9}' = tag
            and (e.module, e.name, e.delay_until, e.id) > (after_module, after_name, after_due, after_id)
            and (e.module, e.name) <= (until_module, until_name) order by 1, 2, 3, 4 limit look)
    ) as t order by t.module, t.name, t.delay_until, t.id limit look;
end
$$;

-- Up to `look` dead events of a canvas that have a tag and are after a place in the list of dead
-- events, the latest first.
create function wakeq.tagged_dead(canvas uuid, tag text, after_died timestamptz, after_id uuid, look bigint)
returns setof uuid language plpgsql stable as $$
begin
    return query
    select t.id from (
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,0}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,1}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,2}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,3}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,4}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,5}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,6}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,7}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,8}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look) union all
        (select d.died_at, d.id from wakeq.dead_events d
          where d.canvas_id = canvas and d.options #>> '{tags,9}' = tag and (d.died_at, d.id) < (after_died, after_id)
          order by 1 desc, 2 desc limit look)
    ) as t order by t.died_at desc, t.id desc limit look;
end
$$;

revoke all on all functions in schema wakeq from public;
