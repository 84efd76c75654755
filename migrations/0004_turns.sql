-- Turns: the claims of copies in queues, by workers and by services that pull over HTTP.
--
-- `take_turns` is for copies what a worker's claim is for events. It passes over the rotation of
-- the facets (0003), takes the first copy of each that may run, and moves the rotation. Each step
-- of a pass is a function: some read, `share_turns` and `choose_copies` decide from what was read,
-- and the others write. `pull_turns` is the same for services that pull: it leases what it takes.
--
-- The steps have snapshots of their own. Nobody else writes the facets of a rotation meanwhile,
-- because `take_turns` holds the lock of the queue. A copy may change, so it is locked and checked
-- again before it is claimed. One that is committed meanwhile, before the head of its facet, is
-- recalled when it is announced.
--
-- Nobody is notified of the copies of a pulled queue. What became due there, was given back or was
-- lost is found by a look at the canvases with copies (`enter_due`).

-- A copy that was claimed.
create type wakeq.turn as (
    id uuid, canvas_id uuid, module text, name text, modifier text, value text, retries integer,
    delay_until timestamptz, enqueued_at timestamptz, locked_at timestamptz, claims integer, nonce integer,
    losses integer, postponed_since timestamptz, took_over boolean, traceparent text, object text, seq bigint,
    prev bigint, origin uuid, is_limited boolean, is_cancelled boolean
);

-- What a call of `take_turns` asks for, and how far it has come.
create type wakeq.turn_call as (
    queue         text,
    asked         uuid[],
    only_asked    boolean,
    lease         interval,
    losses_below  integer,
    value_max     integer,
    grace         interval,
    -- Of the queue: whether rules hold its copies; the usual weight and limit of a facet.
    is_ruled      boolean,
    weight        integer,
    in_flight_max integer,
    -- The pass, from 1, and when it began.
    pass          integer,
    moment        timestamptz,
    -- The number of turns that are left, and the copies that were taken or could not be locked.
    still         integer,
    taken         uuid[],
    refused       uuid[]
);

-- A facet in a pass.
create type wakeq.turn_facet as (
    canvas_id     uuid,
    position      bigint,
    used          integer,
    weight        integer,
    in_flight_max integer,
    head_at       timestamptz,
    head_id       uuid,
    recalled      uuid[],
    -- With a limit: what runs; what could not be locked; whether a run had no end.
    running       uuid[],
    refused       uuid[],
    has_dropped   boolean,
    -- The turns that its weight and its limit allow, and how many of them it gets.
    share         integer,
    slots         integer
);

-- A copy in a pass, with the position and the slots of its facet.
create type wakeq.turn_copy as (
    canvas_id   uuid,
    position    bigint,
    slots       integer,
    is_limited  boolean,
    id          uuid,
    delay_until timestamptz,
    is_recalled boolean,
    -- 'free': it may run. 'apart': it is under a rule, or it may run only alone. 'bound': it runs,
    -- is not due, or waits for an earlier copy of its lane.
    state       text,
    -- Its number in the facet; whether the facet passes it; whether it is taken.
    nth         bigint,
    is_done     boolean,
    is_taken    boolean
);

-- Claims the next copies of a queue: one of every facet in the rotation before any has a second
-- one, or as many as their weights say, and of each facet the first. `asked` are the copies whose
-- notifications asked for turns; with `only_asked` only these are meant, whatever the rotation
-- says. One session at a time takes turns of a queue.
--
-- A row that another session has locked is left out, and delays nothing but itself. With
-- `bytes_max`, the values together have at most that many bytes, or there is only one value.
--
-- Its statements are planned once a session, except in `facets_in_turn` and `recalled_in_turn`.
create function wakeq.take_turns(
    of_queue     text,
    asked        uuid[],
    wanted       integer,
    only_asked   boolean,
    lease        interval,
    losses_below integer,
    value_max    integer default 2147483647,
    grace        interval default '30 s',
    bytes_max    bigint default null,
    -- How long these claims stand, if not for the length of a lease.
    held_for     interval default null,
    -- The worker that makes the claims.
    by_worker    wakeq.name default null
)
returns setof wakeq.turn language plpgsql volatile
set enable_hashjoin = on set plan_cache_mode = force_generic_plan as $$
declare
    call   wakeq.turn_call;
    facets wakeq.turn_facet[];
    copies wakeq.turn_copy[];
    chosen uuid[];
    locked uuid[];
begin
    perform wakeq.lock_queue(of_queue);
    -- After the lock of the queue, so that a pause waits for as few sessions as possible.
    lock table wakeq.claim_gate in row exclusive mode;
    perform wakeq.enter_rotation(of_queue, asked);
    select of_queue, asked, only_asked, lease, losses_below, value_max, grace,
           coalesce(bool_or(q.tenant_visible), false), coalesce(max(q.weight), 1), max(q.in_flight_max),
           0, null, wanted, '{}', '{}'
      into call from wakeq.queues q where q.name = of_queue;
    loop
        call.pass := call.pass + 1;
        call.moment := clock_timestamp();
        facets := wakeq.share_turns(wakeq.facets_in_turn(call), call.still, only_asked);
        copies := wakeq.choose_copies(wakeq.copies_in_turn(call, facets));
        exit when not wakeq.move_facets(call, facets, copies);
        chosen := array(select c.id from unnest(copies) as c where c.is_taken order by c.nth, c.position);
        if chosen <> '{}' then
            locked := wakeq.lock_copies(chosen, lease);
            call.taken := call.taken || locked;
            call.refused := call.refused || array(select c.id from unnest(chosen) as c (id) where c.id <> all (locked));
            call.still := call.still - cardinality(locked);
        end if;
        perform wakeq.promise_passed(call, copies);
        exit when call.still <= 0 or only_asked or call.pass = 20;
    end loop;
    if bytes_max is not null then
        call.taken := wakeq.fit_turns(of_queue, call.taken, bytes_max);
    end if;
    return query select * from wakeq.claim_copies(call, held_for, by_worker);
end
$$;

-- The facets that a pass may give turns to: the first of the rotation, or those of what was asked
-- for. What ran without an end, and is not after the head, is recalled. The statement is planned at
-- each call, because `only_asked` decides which index it reads.
create function wakeq.facets_in_turn(call wakeq.turn_call) returns wakeq.turn_facet[]
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
    return array(
        select row(f.canvas_id, f.position, f.used, coalesce(s.weight, call.weight),
                   coalesce(s.in_flight_max, call.in_flight_max), f.head_at, f.head_id, f.recalled || r.dropped,
                   r.running, r.refused, r.dropped <> '{}', null, null)::wakeq.turn_facet
          from (select * from wakeq.facets
                 where queue = call.queue
                   and case when call.only_asked
                            then canvas_id = any (array(select e.canvas_id from wakeq.events_v2 e
                                                         where e.id = any (call.asked)))
                            else position is not null end
                 order by position limit least(call.still + 20, 250)) as f
          left join wakeq.facet_settings s on s.queue = f.queue and s.canvas_id = f.canvas_id
         cross join lateral (
               select coalesce(array_agg(e.id) filter (
                          where e.locked_at >= call.moment - call.lease or e.id = any (call.taken)), '{}') as running,
                      coalesce(array_agg(e.id) filter (where e.id = any (call.refused)), '{}') as refused,
                      coalesce(array_agg(e.id) filter (
                          where (e.locked_at is null or e.locked_at < call.moment - call.lease)
                            and e.id <> all (call.taken || call.refused)
                            and (e.delay_until, e.id) <= (f.head_at, f.head_id) and e.id <> all (f.recalled)
                            and e.notify_at is not null), '{}') as dropped
                 from wakeq.events_v2 e
                where coalesce(s.in_flight_max, call.in_flight_max) is not null and e.id = any (f.running)) as r);
end
$$;

-- Shares the turns that are left among facets, in the order of the rotation: each gets what is left
-- of its rounds by its weight, and at most what its limit has room for.
create function wakeq.share_turns(facets wakeq.turn_facet[], still integer, only_asked boolean)
returns wakeq.turn_facet[] language plpgsql immutable as $$
begin
    return array(
        select row(f.canvas_id, f.position, f.used, f.weight, f.in_flight_max, f.head_at, f.head_id, f.recalled,
                   f.running, f.refused, f.has_dropped, f.allowed,
                   greatest(0, least(f.allowed, still - (sum(f.allowed) over (order by f.position) - f.allowed)))
                  )::wakeq.turn_facet
          from (select u.*, greatest(0, least(
                           case when u.weight = 0 then 0
                                when only_asked then 1
                                else u.weight * greatest(1, still / greatest(1, sum(u.weight) over ()))::bigint
                                     - least(u.used, u.weight - 1) end,
                           u.in_flight_max - cardinality(u.running)))::integer as allowed
                  from unnest(facets) as u) as f);
end
$$;

-- The copies that a pass looks at, and their states: the first of the recalled ones and of those
-- after the head, more of them in each pass. Only the earliest of a lane can be its first, so each
-- lane is looked at once.
create function wakeq.copies_in_turn(call wakeq.turn_call, facets wakeq.turn_facet[])
returns wakeq.turn_copy[] language plpgsql stable as $$
begin
    return array(
        select row(c.canvas_id, c.position, c.slots, c.is_limited, c.id, c.delay_until, c.is_recalled,
                   case when c.locked_at >= call.moment - call.lease or c.id = any (call.taken || call.refused)
                             or c.notify_at is null or c.delay_until > call.moment
                             or c.cancelled_by is not null and wakeq.is_pulled(call.queue)
                             or c.object is not null and (c.nth_of_lane > 1 or not wakeq.leads_lane(
                                    c.id, c.canvas_id, c.object, call.queue, c.module, c.name)) then 'bound'
                        when c.losses + (c.locked_at is not null)::integer >= call.losses_below
                             or octet_length(c.value) > call.value_max
                             or call.is_ruled and exists (
                                    select from wakeq.scheduling_rules r where r.canvas_id = c.canvas_id
                                       and r.event_space = c.module and r.handler_name = c.name
                                       and (r.until is null or r.until > call.moment) offset 0)
                             or (select exists (select from wakeq.scheduling_rules where event_space = 'CANVAS'))
                                and wakeq.switch_on(c.canvas_id, call.queue, call.moment) is not null
                        then 'apart' else 'free' end, null, null, null)::wakeq.turn_copy
          from (select u.*, row_number() over (partition by u.canvas_id, u.object order by u.seq) as nth_of_lane
                  from (select f.position, f.slots, f.in_flight_max is not null as is_limited, r.*, true as is_recalled
                          from unnest(facets) as f
                          join wakeq.recalled_in_turn(call, facets) as r on r.canvas_id = f.canvas_id where f.slots > 0
                         union all
                        select f.position, f.slots, f.in_flight_max is not null, e.*, false
                          from unnest(facets) as f cross join lateral (
                               select * from wakeq.events_v2 e
                                where e.queue = call.queue and e.canvas_id = f.canvas_id
                                  and e.delay_until <= call.moment and e.queue <> ''
                                  and (e.delay_until, e.id) > (f.head_at, f.head_id)
                                order by e.delay_until, e.id limit f.slots + least(100, 2 * call.pass * call.pass)) as e
                         where f.slots > 0 and not call.only_asked) as u) as c);
end
$$;

-- The recalled copies that a pass looks at, or those that were asked for. The statement is planned
-- at each call: a plan that was made while the queue was nearly empty reads the whole queue.
create function wakeq.recalled_in_turn(call wakeq.turn_call, facets wakeq.turn_facet[])
returns setof wakeq.events_v2 language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
    ids uuid[] := call.asked;
begin
    if not call.only_asked then
        ids := array(select unnest(f.recalled[1:f.slots + 20]) from unnest(facets) as f where f.slots > 0);
    end if;
    if ids <> '{}' then
        return query select e.* from wakeq.events_v2 e where e.id = any (ids) and e.queue = call.queue;
    end if;
end
$$;

-- Chooses as many free copies of each facet as it has slots, the recalled ones first. The facet
-- passes all up to the last one that is taken, or all of them if there were too few.
create function wakeq.choose_copies(copies wakeq.turn_copy[]) returns wakeq.turn_copy[] language plpgsql immutable as $$
begin
    return array(
        select row(c.canvas_id, c.position, c.slots, c.is_limited, c.id, c.delay_until, c.is_recalled, c.state,
                   c.place, c.number < c.slots or c.number = c.slots and c.state = 'free',
                   c.number <= c.slots and c.state = 'free')::wakeq.turn_copy
          from (select u.*, row_number() over facet as place, sum((u.state = 'free')::integer) over facet as number
                  from unnest(copies) as u
                window facet as (partition by u.canvas_id order by u.is_recalled desc, u.delay_until, u.id)) as c);
end
$$;

-- What a pass comes to for each facet that it looked at: what is taken of it; which of the recalled
-- copies are kept; its new head, if it moves; and whether it leaves the rotation, because it may
-- have no more or has none.
create function wakeq.outcome_of_pass(pass integer, facets wakeq.turn_facet[], copies wakeq.turn_copy[])
returns table (facet wakeq.turn_facet, taken uuid[], kept uuid[], head wakeq.head, leaves boolean)
language sql immutable as $$
    select f, coalesce(c.taken, '{}'), coalesce(c.kept, '{}') || f.recalled[f.slots + 21:], c.head,
           f.weight = 0 or cardinality(f.running) >= f.in_flight_max
               or (cardinality(f.recalled) <= f.slots + 20
                   and coalesce(cardinality(c.taken), 0) < f.slots
                   and coalesce(c.scanned, 0) < f.slots + least(100, 2 * pass * pass)) is true
      from unnest(facets) as f
      left join (
           select u.canvas_id, array_agg(u.id order by u.nth) filter (where u.is_taken) as taken,
                  array_agg(u.id order by u.nth) filter (where u.is_recalled and not u.is_done) as kept,
                  (array_agg(row(u.delay_until, u.id)::wakeq.head order by u.delay_until desc, u.id desc)
                      filter (where not u.is_recalled and u.is_done))[1] as head,
                  count(*) filter (where not u.is_recalled) as scanned
             from unnest(copies) as u group by u.canvas_id) as c on c.canvas_id = f.canvas_id
     where f.slots > 0 or f.share = 0
     order by f.position;
$$;

-- Writes what a pass comes to: facets move behind the others when their rounds are over, or out of
-- the rotation. Whether there were any.
create function wakeq.move_facets(call wakeq.turn_call, facets wakeq.turn_facet[], copies wakeq.turn_copy[])
returns boolean language plpgsql volatile as $$
begin
    -- Made once: each place in the rotation is taken once, in the order of the facets.
    with placed as materialized (
        select (o.facet).*, o.taken, o.kept, o.head, o.leaves, nextval('wakeq.facet_seq') as behind
          from wakeq.outcome_of_pass(call.pass, facets, copies) as o
    )
    update wakeq.facets f
       set position = case when call.only_asked then f.position
                           when p.leaves then null
                           when least(p.used, p.weight - 1) + cardinality(p.taken) >= p.weight
                                or cardinality(p.taken) < p.slots then p.behind
                           else f.position end,
           used = case when call.only_asked then f.used
                       when p.leaves or cardinality(p.taken) < p.slots then 0
                       else (least(p.used, p.weight - 1) + cardinality(p.taken)) % p.weight end,
           head_at = case when cardinality(p.recalled) > 2000 then '-infinity'
                          else coalesce((p.head).at, p.head_at) end,
           head_id = coalesce((p.head).id, p.head_id),
           recalled = case when cardinality(p.recalled) > 2000 then '{}'
                           when call.only_asked or p.slots = 0 then p.recalled
                           else p.kept end,
           running = case when p.in_flight_max is null then '{}' else p.running || p.refused || p.taken end,
           -- A facet that leaves was seen to be empty, unless it leaves because it is full.
           was_full = p.in_flight_max is not null
                      and (cardinality(p.running || p.taken) >= p.in_flight_max
                           or (f.was_full or p.has_dropped or cardinality(f.running) >= p.in_flight_max)
                              and (call.only_asked or p.weight = 0 or not p.leaves))
      from placed p where f.queue = call.queue and f.canvas_id = p.canvas_id;
    return found;
end
$$;

-- Locks the chosen copies that are free now and not locked. None is pulled that was cancelled.
create function wakeq.lock_copies(chosen uuid[], lease interval) returns uuid[] language plpgsql volatile as $$
begin
    return (
        select coalesce(array_agg(l.id order by array_position(chosen, l.id)), '{}')
          from (select e.id from wakeq.events_v2 e
                 where e.id = any (chosen) and e.delay_until <= clock_timestamp()
                   and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
                   and (e.cancelled_by is null or not wakeq.is_pulled(e.queue)) for update skip locked) as l);
end
$$;

-- Makes promises again. A copy that is passed in a facet with a limit, although it does not run and
-- no lane holds it, may have no notification left.
create function wakeq.promise_passed(call wakeq.turn_call, copies wakeq.turn_copy[])
returns void language plpgsql volatile as $$
declare
    passed uuid[] := array(select c.id from unnest(copies) as c where c.is_done and c.state = 'apart' and c.is_limited);
begin
    if passed <> '{}' and not call.only_asked then
        update wakeq.events_v2 e set notify_at = clock_timestamp() + call.grace, probes = 0
         where e.id = any (array(
               select p.id from wakeq.events_v2 p
                where p.id = any (passed) and p.notify_at > call.moment + call.grace for update skip locked));
    end if;
end
$$;

-- The first of the taken copies, whose values together have at most this many bytes; the others
-- keep their turns.
create function wakeq.fit_turns(of_queue text, taken uuid[], bytes_max bigint)
returns uuid[] language plpgsql volatile as $$
declare
    fitting uuid[];
    spared  uuid[];
begin
    select coalesce(array_agg(t.id order by t.number) filter (where t.fits), '{}'),
           array_agg(t.id order by t.number) filter (where not t.fits)
      into fitting, spared
      from (select o.id, o.number,
                   o.number = 1 or sum(octet_length(e.value)) over (order by o.number) <= bytes_max as fits
              from unnest(taken) with ordinality as o (id, number)
             cross join lateral (
                   select x.value from wakeq.events_v2 x where x.id = o.id offset 0) as e) as t;
    if spared is not null then
        perform wakeq.keep_turns(of_queue, spared);
    end if;
    return fitting;
end
$$;

-- Claims the taken copies, in their order.
create function wakeq.claim_copies(call wakeq.turn_call, held_for interval, by_worker wakeq.name)
returns setof wakeq.turn language plpgsql volatile as $$
begin
    return query
    with claimed as (
        update wakeq.events_v2 e
           set locked_at = clock_timestamp() + coalesce(held_for - call.lease, interval '0'),
               worker = by_worker,
               claims = e.claims + 1,
               nonce = floor(random() * 2147483648)::integer,
               losses = e.losses + (e.locked_at is not null)::integer
         where e.id = any (call.taken)
           and e.delay_until <= clock_timestamp()
           and (e.locked_at is null or e.locked_at < clock_timestamp() - call.lease)
        returning e.*,
                  e.losses > 0 and exists (
                      select from wakeq.events_v2 before
                       where before.id = e.id and before.locked_at is not null offset 0) as took_over
    )
    select c.id, c.canvas_id, c.module::text, c.name::text, c.modifier::text, c.value::text, c.retries,
           c.delay_until, c.enqueued_at, c.locked_at, c.claims, c.nonce, c.losses, c.postponed_since,
           c.took_over, c.traceparent::text, c.object::text, c.seq, c.prev, c.origin,
           coalesce(s.in_flight_max, call.in_flight_max) is not null, c.cancelled_by is not null
      from claimed c
      join unnest(call.taken) with ordinality as o (id, number) on o.id = c.id
      left join wakeq.facet_settings s on s.queue = call.queue and s.canvas_id = c.canvas_id
     order by o.number;
end
$$;

-- The token of a lease: the fencing token of the claim, and a check of 96 bits.
create function wakeq.lease_token(secret bytea, id uuid, claims integer, nonce integer)
returns text language sql immutable strict
return lpad(to_hex(claims), 8, '0') || lpad(to_hex(nonce), 8, '0')
    || encode(substring(sha256(secret || uuid_send(id) || int4send(claims) || int4send(nonce)) from 1 for 12), 'hex');

-- The canvases that have copies in a pulled queue which might be taken, although their facets are
-- not in the rotation: the copies became due, were given back, or were lost. It looks at the first
-- `most` canvases with copies, and at as many after the canvas `after`.
create function wakeq.due_facets(of_queue text, lease interval, after uuid, most integer)
returns table (canvas_id uuid) language plpgsql stable as $$
#variable_conflict use_column
declare
    moment timestamptz := clock_timestamp();
begin
    return query
    with recursive canvases as (
        (select e.canvas_id, true as from_the_first, 1 as number from wakeq.events_v2 e
          where e.queue = of_queue and e.queue <> '' order by e.canvas_id limit 1)
         union all
        (select e.canvas_id, false, 1 from wakeq.events_v2 e
          where e.queue = of_queue and e.canvas_id > after and e.queue <> '' order by e.canvas_id limit 1)
         union all
        select (select e.canvas_id from wakeq.events_v2 e
                 where e.queue = of_queue and e.canvas_id > c.canvas_id and e.queue <> ''
                 order by e.canvas_id limit 1),
               c.from_the_first, c.number + 1
          from canvases c where c.canvas_id is not null and c.number < most
    )
    select c.canvas_id
      from (select distinct x.canvas_id from canvases x where x.canvas_id is not null) as c
      left join wakeq.facets f on f.queue = of_queue and f.canvas_id = c.canvas_id
     where f.position is null
       and (exists (select from wakeq.events_v2 e
                     where e.queue = of_queue and e.canvas_id = c.canvas_id and e.delay_until <= moment
                       and e.queue <> ''
                       and (e.delay_until, e.id)
                           > (coalesce(f.head_at, '-infinity'),
                              coalesce(f.head_id, '00000000-0000-0000-0000-000000000000')))
            or exists (select from wakeq.events_v2 e
                        where e.id = any (f.running || f.recalled) and e.queue = of_queue and e.canvas_id = c.canvas_id
                          and (e.locked_at is null or e.locked_at < moment - lease)
                          and e.delay_until <= moment and e.notify_at is not null and e.cancelled_by is null))
       and not wakeq.facet_holds(of_queue, c.canvas_id, lease);
end
$$;

-- Puts the facets of these canvases into the rotation; whether there are any. Like `announce`, it
-- does not wait for the disk.
create function wakeq.enter_due(of_queue text, lease interval, after uuid, most integer)
returns boolean language plpgsql volatile as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    perform wakeq.lock_queue(of_queue);
    insert into wakeq.facets as f (queue, canvas_id, position)
    select of_queue, d.canvas_id, nextval('wakeq.facet_seq') from wakeq.due_facets(of_queue, lease, after, most) as d
        on conflict (queue, canvas_id) do update set position = excluded.position where f.position is null;
    return found;
end
$$;

-- Turns for services that pull. It runs with the rights of the schema's owner, so that the role of
-- the API can take turns of pulled queues, and of no others.
create function wakeq.pull_turns(
    of_queue  text,
    wanted    integer,
    held_for  interval,
    lease     interval,
    grace     interval,
    bytes_max bigint
)
returns table (
    id uuid, canvas_id uuid, module text, name text, modifier text, value text, retries integer,
    delay_until timestamptz, enqueued_at timestamptz, locked_at timestamptz, claims integer, nonce integer,
    losses integer, postponed_since timestamptz, took_over boolean, traceparent text, object text, seq bigint,
    prev bigint, origin uuid, is_limited boolean, token text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select t.id, t.canvas_id, t.module, t.name, t.modifier, t.value, t.retries, t.delay_until, t.enqueued_at,
           t.locked_at, t.claims, t.nonce, t.losses, t.postponed_since, t.took_over, t.traceparent, t.object, t.seq,
           t.prev, t.origin, t.is_limited, wakeq.lease_token(q.lease_secret, t.id, t.claims, t.nonce)
      from wakeq.queues q
     cross join lateral wakeq.take_turns(
           q.name, '{}', wanted, false, lease, 2147483647, 2147483647, grace, bytes_max, held_for) with ordinality as t
     where q.name = of_queue and q.pulled
     order by t.ordinality;
end
$$;

revoke all on all functions in schema wakeq from public;
