-- Turns: the claims of copies in queues, by workers and by services that pull over HTTP.
--
-- `take_turns` is for copies what `claim` (0001) is for events. It goes through the rotation of the
-- facets (0003), takes the first copy of each that may run, and moves the rotation in the same
-- statement. `pull_turns` is the same for services that pull: it leases what it takes.
--
-- Nobody is notified of the copies of a pulled queue. What became due there, was given back or was
-- lost is found by a look at the canvases with copies (`enter_due`).

-- Claims the next copies of a queue: one of every facet in the rotation before any has a second
-- one, or as many as their weights say, and of each facet the first. `asked` are the copies whose
-- notifications asked for turns; with `only_asked` only these are meant, whatever the rotation
-- says. One session at a time takes turns of a queue.
--
-- A row that another session has locked is left out, and delays nothing but itself. A copy that is
-- passed over in a facet with a limit, although it does not run and no lane holds it, may have no
-- notification left: its promise is made again.
--
-- With `bytes_max`, the values together have at most that many bytes, or there is only one value.
-- What exceeds it keeps its turn.
--
-- The statements are planned at each call: what they look at depends on `only_asked`, and on how
-- much is waiting.
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
returns table (
    id          uuid,
    canvas_id   uuid,
    module      text,
    name        text,
    modifier    text,
    value       text,
    retries     integer,
    delay_until timestamptz,
    enqueued_at timestamptz,
    locked_at   timestamptz,
    claims      integer,
    losses      integer,
    took_over   boolean,
    traceparent text,
    object      text,
    seq         bigint,
    prev        bigint,
    origin      uuid,
    is_limited  boolean
)
language plpgsql volatile set enable_hashjoin = on as $$
#variable_conflict use_column
declare
    still  integer := wanted;
    taken  uuid[] := '{}';
    chosen uuid[];
    -- Of the chosen, those that could be locked at once, and those that could not.
    locked  uuid[];
    refused uuid[] := '{}';
    -- Passed over, and to be promised again.
    passed uuid[];
    -- Beyond the bytes.
    spared uuid[];
    seen   integer;
    -- In a variable, because an index can be read up to it only then.
    moment timestamptz;
    -- Whether rules hold the copies of this queue.
    ruled  boolean;
begin
    perform wakeq.lock_queue(of_queue);
    -- After the lock of the queue, so that a pause waits for as few sessions as possible.
    lock table wakeq.claim_gate in row exclusive mode;
    perform wakeq.enter_rotation(of_queue, asked);
    ruled := wakeq.is_shown(of_queue);
    for pass in 1 .. 20 loop
        moment := clock_timestamp();
        with settled as (
            select f.queue, f.canvas_id, f.position, f.used, f.head_at, f.head_id, f.recalled || r.dropped as recalled,
                   coalesce(s.weight, q.weight, 1) as weight,
                   coalesce(s.in_flight_max, q.in_flight_max) as in_flight_max, r.running, r.barred,
                   r.dropped <> '{}' as has_dropped
              from (select * from wakeq.facets
                     where queue = of_queue
                       and case when only_asked
                                then canvas_id = any (array(select e.canvas_id from wakeq.events_v2 e
                                                             where e.id = any (asked)))
                                else position is not null end
                     order by position limit least(still + 20, 250)) as f
              left join wakeq.queues q on q.name = f.queue
              left join wakeq.facet_settings s on s.queue = f.queue and s.canvas_id = f.canvas_id
             cross join lateral (
                   -- What runs; what an earlier pass could not lock; and what ran without an end
                   -- and is not after the head.
                   select coalesce(array_agg(e.id) filter (
                              where e.locked_at >= moment - lease or e.id = any (taken)), '{}') as running,
                          coalesce(array_agg(e.id) filter (where e.id = any (refused)), '{}') as barred,
                          coalesce(array_agg(e.id) filter (
                              where (e.locked_at is null or e.locked_at < moment - lease)
                                and e.id <> all (taken || refused)
                                and (e.delay_until, e.id) <= (f.head_at, f.head_id) and e.id <> all (f.recalled)
                                and e.notify_at is not null), '{}') as dropped
                     from wakeq.events_v2 e
                    where coalesce(s.in_flight_max, q.in_flight_max) is not null and e.id = any (f.running)) as r
        ), shares as (
            select *, greatest(0, least(
                       case when weight = 0 then 0
                            when only_asked then 1
                            else weight * greatest(1, still / greatest(1, sum(weight) over ()))::bigint
                                 - least(used, weight - 1) end,
                       in_flight_max - cardinality(running)))::integer as share
              from settled
        ), slotted as (
            select *, greatest(0, least(share, still - (sum(share) over (order by position) - share)))::integer as slots
              from shares
        ), found as (
            select f.canvas_id, f.slots, f.position, f.in_flight_max, c.id, c.delay_until, c.notify_at, c.is_recalled,
                   c.locked_at, c.losses, c.module, c.name, c.object, octet_length(c.value) as bytes,
                   row_number() over (partition by c.canvas_id, c.object order by c.seq) as nth_of_lane
              from slotted f cross join lateral (
                  (select e.*, true as is_recalled from wakeq.events_v2 e
                    where e.id = any (case when only_asked then asked else f.recalled[1:f.slots + 20] end)
                      and e.queue = of_queue)
                  union all
                  (select e.*, false from wakeq.events_v2 e
                    where not only_asked and e.queue = of_queue and e.canvas_id = f.canvas_id
                      and e.delay_until <= moment and (e.delay_until, e.id) > (f.head_at, f.head_id)
                    order by e.delay_until, e.id limit f.slots + least(100, 2 * pass * pass))) as c
             where f.slots > 0 and c.canvas_id = f.canvas_id
        ), looked as materialized (
            -- Only the earliest of a lane can be its first, so each lane is looked at once. If this
            -- were not materialized, it would be looked at wherever the state is asked for.
            select c.canvas_id, c.slots, c.position, c.in_flight_max, c.id, c.delay_until, c.notify_at, c.is_recalled,
                   case when (c.locked_at is null or c.locked_at < moment - lease) and c.id <> all (taken || refused)
                             and c.notify_at is not null and c.delay_until <= moment
                             and (c.object is null
                                  or c.nth_of_lane = 1
                                     and c.id = wakeq.first_of_lane(c.canvas_id, c.object, of_queue, c.module, c.name)
                                     and not wakeq.lane_halts(c.canvas_id, c.object, of_queue, c.module, c.name))
                        then case when c.losses + (c.locked_at is not null)::integer < losses_below
                                       and c.bytes <= value_max
                                       and not (ruled and exists (
                                           select from wakeq.scheduling_rules r
                                            where r.canvas_id = c.canvas_id and r.event_space = c.module
                                              and r.handler_name = c.name and (r.until is null or r.until > moment)))
                                  then 'free' else 'apart' end
                        else 'bound' end as state
              from found c
        ), judged as (
            select *, state = 'free' as is_free from looked
        ), ranked as (
            select *, sum(is_free::integer) over facet as number, row_number() over facet as nth,
                   sum((not is_recalled)::integer) over (partition by canvas_id) as scanned
              from judged window facet as (partition by canvas_id order by is_recalled desc, delay_until, id)
        ), done as (
            -- Looked at: all up to the last one that is taken, or all if there were too few.
            select *, number < slots or (number = slots and is_free) as is_done, is_free and number <= slots as is_taken
              from ranked
        ), moved as (
            select f.canvas_id, f.weight, f.used, f.position, f.in_flight_max, f.running, f.barred, f.share, f.slots,
                   f.head_at, f.head_id, f.recalled, f.has_dropped,
                   coalesce(d.taken, '{}') as taken, d.kept, d.head,
                   f.recalled[f.slots + 21:] as unread,
                   f.weight = 0 or cardinality(f.running) >= f.in_flight_max
                       or (cardinality(f.recalled) <= f.slots + 20
                           and coalesce(cardinality(d.taken), 0) < f.slots
                           and coalesce(d.scanned, 0) < f.slots + least(100, 2 * pass * pass)) is true as leaves
              from slotted f left join (
                  select canvas_id, array_agg(id order by nth) filter (where is_taken) as taken,
                         array_agg(id order by nth) filter (where is_recalled and not is_done) as kept,
                         (array_agg(row(delay_until, id)::wakeq.head order by delay_until desc, id desc)
                             filter (where not is_recalled and is_done))[1] as head,
                         max(scanned) as scanned
                    from done group by canvas_id) as d on d.canvas_id = f.canvas_id
             where f.slots > 0 or f.share = 0
        ), placed as (
            select *, nextval('wakeq.facet_seq') as behind from (select * from moved order by position) as m
        ), written as (
            update wakeq.facets f
               set position = case when only_asked then f.position
                                   when p.leaves then null
                                   when least(p.used, p.weight - 1) + cardinality(p.taken) >= p.weight
                                        or cardinality(p.taken) < p.slots then p.behind
                                   else f.position end,
                   used = case when only_asked then f.used
                               when p.leaves or cardinality(p.taken) < p.slots then 0
                               else (least(p.used, p.weight - 1) + cardinality(p.taken)) % p.weight end,
                   head_at = case when cardinality(p.recalled) > 2000 then '-infinity'
                                  else coalesce((p.head).at, p.head_at) end,
                   head_id = coalesce((p.head).id, p.head_id),
                   recalled = case when cardinality(p.recalled) > 2000 then '{}'
                                   when only_asked or p.slots = 0 then p.recalled
                                   else coalesce(p.kept, '{}') || p.unread end,
                   running = case when p.in_flight_max is null then '{}' else p.running || p.barred || p.taken end,
                   -- A facet that leaves was seen to be empty, unless it leaves because it is full.
                   was_full = p.in_flight_max is not null
                              and (cardinality(p.running || p.taken) >= p.in_flight_max
                                   or (f.was_full or p.has_dropped or cardinality(f.running) >= p.in_flight_max)
                                      and (only_asked or p.weight = 0 or not p.leaves))
              from placed p where f.queue = of_queue and f.canvas_id = p.canvas_id
        )
        select array_agg(d.id order by d.nth, d.position) filter (where d.is_taken),
               array_agg(d.id) filter (where d.is_done and d.state = 'apart' and not only_asked
                                         and d.in_flight_max is not null and d.notify_at > moment + grace),
               (select count(*) from moved)
          into chosen, passed, seen from done d;
        if chosen is not null then
            select coalesce(array_agg(l.id order by array_position(chosen, l.id)), '{}') into locked
              from (select e.id from wakeq.events_v2 e
                     where e.id = any (chosen) and e.delay_until <= clock_timestamp()
                       and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
                       for update skip locked) as l;
            taken := taken || locked;
            refused := refused || array(select c.id from unnest(chosen) as c (id) where c.id <> all (locked));
            still := still - cardinality(locked);
        end if;
        if passed is not null then
            update wakeq.events_v2 e set notify_at = clock_timestamp() + grace, probes = 0
             where e.id = any (array(
                   select p.id from wakeq.events_v2 p
                    where p.id = any (passed) and p.notify_at > moment + grace for update skip locked));
        end if;
        exit when still <= 0 or seen = 0 or only_asked;
    end loop;
    if bytes_max is not null then
        select coalesce(array_agg(t.id order by t.number) filter (where t.fits), '{}'),
               array_agg(t.id order by t.number) filter (where not t.fits)
          into taken, spared
          from (select o.id, o.number,
                       o.number = 1 or sum(octet_length(e.value)) over (order by o.number) <= bytes_max as fits
                  from unnest(taken) with ordinality as o (id, number)
                  join wakeq.events_v2 e on e.id = o.id) as t;
        if spared is not null then
            perform wakeq.keep_turns(of_queue, spared);
        end if;
    end if;
    return query
    with claimed as (
        update wakeq.events_v2 e
           set locked_at = clock_timestamp() + coalesce(held_for - lease, interval '0'),
               worker = by_worker,
               claims = e.claims + 1,
               losses = e.losses + (e.locked_at is not null)::integer
         where e.id = any (taken)
           and e.delay_until <= clock_timestamp()
           and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
        returning e.*,
                  e.losses > 0 and exists (
                      select from wakeq.events_v2 before
                       where before.id = e.id and before.locked_at is not null) as took_over
    )
    select c.id, c.canvas_id, c.module::text, c.name::text, c.modifier::text, c.value::text, c.retries,
           c.delay_until, c.enqueued_at, c.locked_at, c.claims, c.losses, c.took_over,
           c.traceparent::text, c.object::text, c.seq, c.prev, c.origin,
           coalesce(s.in_flight_max, q.in_flight_max) is not null
      from claimed c
      join unnest(taken) with ordinality as o (id, number) on o.id = c.id
      left join wakeq.queues q on q.name = of_queue
      left join wakeq.facet_settings s on s.queue = of_queue and s.canvas_id = c.canvas_id
     order by o.number;
end
$$;

-- The token of a lease: the number of the claim, since it is good for that claim only, and a check.
create function wakeq.lease_token(secret bytea, id uuid, claims integer) returns text language sql immutable strict
return lpad(to_hex(claims), 8, '0')
    || encode(substring(sha256(secret || uuid_send(id) || int4send(claims)) from 1 for 16), 'hex');

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
          where e.queue = of_queue order by e.canvas_id limit 1)
         union all
        (select e.canvas_id, false, 1 from wakeq.events_v2 e
          where e.queue = of_queue and e.canvas_id > after order by e.canvas_id limit 1)
         union all
        select (select e.canvas_id from wakeq.events_v2 e
                 where e.queue = of_queue and e.canvas_id > c.canvas_id order by e.canvas_id limit 1),
               c.from_the_first, c.number + 1
          from canvases c where c.canvas_id is not null and c.number < most
    )
    select c.canvas_id
      from (select distinct x.canvas_id from canvases x where x.canvas_id is not null) as c
      left join wakeq.facets f on f.queue = of_queue and f.canvas_id = c.canvas_id
     where f.position is null
       and (exists (select from wakeq.events_v2 e
                     where e.queue = of_queue and e.canvas_id = c.canvas_id and e.delay_until <= moment
                       and (e.delay_until, e.id)
                           > (coalesce(f.head_at, '-infinity'),
                              coalesce(f.head_id, '00000000-0000-0000-0000-000000000000')))
            or exists (select from wakeq.events_v2 e
                        where e.id = any (f.running || f.recalled) and e.queue = of_queue and e.canvas_id = c.canvas_id
                          and (e.locked_at is null or e.locked_at < moment - lease)
                          and e.delay_until <= moment and e.notify_at is not null))
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
    id          uuid,
    canvas_id   uuid,
    module      text,
    name        text,
    modifier    text,
    value       text,
    retries     integer,
    delay_until timestamptz,
    enqueued_at timestamptz,
    locked_at   timestamptz,
    claims      integer,
    losses      integer,
    took_over   boolean,
    traceparent text,
    object      text,
    seq         bigint,
    prev        bigint,
    origin      uuid,
    is_limited  boolean,
    token       text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select t.id, t.canvas_id, t.module, t.name, t.modifier, t.value, t.retries, t.delay_until, t.enqueued_at,
           t.locked_at, t.claims, t.losses, t.took_over, t.traceparent, t.object, t.seq, t.prev, t.origin, t.is_limited,
           wakeq.lease_token(q.lease_secret, t.id, t.claims)
      from wakeq.queues q
     cross join lateral wakeq.take_turns(
           q.name, '{}', wanted, false, lease, 2147483647, 2147483647, grace, bytes_max, held_for) with ordinality as t
     where q.name = of_queue and q.pulled
     order by t.ordinality;
end
$$;

revoke all on all functions in schema wakeq from public;
