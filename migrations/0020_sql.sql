-- Emitting with plain SQL: one function, which checks what the library checks. A role that may execute it needs no right
-- on any table.

-- Which role of the database may emit on which canvas by wakeq.emit, it and its members. Null: on every canvas.
create table wakeq.emitters (
    role      name not null,
    canvas_id uuid,
    constraint emitters_once unique nulls not distinct (role, canvas_id),
    constraint emitters_canvas check (canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff')
);

comment on table wakeq.emitters is 'Which role may emit on which canvas by wakeq.emit; a null canvas stands for all';

-- A duration of the deployment, or the usual one where no process has written any.
create function wakeq.duration_of(setting text, usual interval) returns interval language sql stable
return coalesce((select s.value_us * interval '1 microsecond' from wakeq.settings s where s.name = setting), usual);

-- Emits an event in the caller's transaction. `value` is JSON. `due`: not before then. `id`: chosen by the caller; a second
-- call with it emits nothing, also after the event has completed. `object`: runs in order with the others of this object.
-- `notified`: the caller publishes the notification after its commit, so that the promise may wait for the grace.
--
-- The answer: the event's id, whether it is new, and the notification's body.
create function wakeq.emit(
    handler       text,
    value         text,
    canvas        uuid default '00000000-0000-0000-0000-000000000000',
    module        text default 'WORKER',
    modifier      text default '_',
    due           timestamptz default null,
    id            uuid default null,
    object        text default null,
    traceparent   text default null,
    notified      boolean default false,
    out event_id     uuid,
    out is_new       boolean,
    out notification text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    own_id   constant uuid := emit.id;
    moment   timestamptz := clock_timestamp();
    grace    interval := interval '0';
    link     bigint;
    previous bigint;
begin
    -- The function runs with the rights of the schema's owner: the caller is the role that the session logged in as.
    if not pg_has_role(session_user, current_user, 'member') and not exists (
        select from wakeq.emitters e join pg_roles r on r.rolname = e.role
         where pg_has_role(session_user, r.oid, 'member') and (e.canvas_id is null or e.canvas_id = emit.canvas))
    then
        raise exception 'the role % may not emit on the canvas %', session_user, emit.canvas
            using errcode = 'insufficient_privilege',
                  hint = format('The owner of the schema allows it: insert into wakeq.emitters (role, canvas_id) values (%L, %L);',
                                session_user, emit.canvas);
    end if;
    if emit.canvas is null or emit.canvas = 'ffffffff-ffff-ffff-ffff-ffffffffffff' or emit.module in ('ANSWER', 'CRON', 'QUEUE') then
        raise exception 'the canvas ffffffff-ffff-ffff-ffff-ffffffffffff and the modules ANSWER, CRON and QUEUE are reserved'
            using errcode = 'invalid_parameter_value', hint = 'Take the canvas of a tenant, and the module WORKER.';
    end if;
    if emit.value is null or octet_length(emit.value) > 262144 then
        raise exception 'a value has at most 262,144 bytes'
            using errcode = 'program_limit_exceeded', hint = 'Store what is large elsewhere, and emit where it is.';
    end if;
    perform emit.value::jsonb;
    if emit.object is not null then
        insert into wakeq.objects (canvas_id, object) values (emit.canvas, emit.object) on conflict do nothing;
        select o.last_seq into previous from wakeq.objects o
         where o.canvas_id = emit.canvas and o.object = emit.object for update;
    end if;
    moment := coalesce(emit.due, moment);
    event_id := coalesce(wakeq.chosen_id(emit.canvas, own_id), gen_random_uuid());
    is_new := true;
    notification := format('{"id":"%s","canvasID":"%s"}', event_id, emit.canvas);
    if own_id is not null then
        insert into wakeq.emitted_ids (canvas_id, id, due_at)
        select emit.canvas, event_id, greatest(now(), moment)
         where not exists (select from wakeq.events_v2 e where e.id = event_id and e.canvas_id = emit.canvas)
           and not exists (select from wakeq.dead_events d where d.id = event_id and d.canvas_id = emit.canvas)
            on conflict do nothing;
        if not found then
            is_new := false;
            return;
        end if;
    end if;
    if emit.object is not null then
        -- After the lock: so the numbers grow along the chain.
        link := nextval('wakeq.event_seq');
        update wakeq.objects o set last_seq = link where o.canvas_id = emit.canvas and o.object = emit.object;
    end if;
    if emit.notified then
        grace := wakeq.duration_of('grace', interval '30 seconds');
    end if;
    insert into wakeq.events_v2
        (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, object, seq, prev)
    values (event_id, emit.canvas, emit.module, emit.handler, emit.modifier, emit.value, moment,
            wakeq.wake_at(moment, clock_timestamp(), wakeq.duration_of('horizon', interval '10 minutes'), grace),
            emit.traceparent, emit.object, link, previous);
end
$$;
