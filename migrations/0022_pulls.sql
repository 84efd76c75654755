-- Queues that services pull over HTTP: their copies are leased, and no worker is notified of them. Expands only.

alter table wakeq.queues
    add column pulled boolean not null default false,
    -- How often a copy is tried again that was released as failed, and when.
    add column pull_retries integer not null default 2 check (pull_retries between 0 and 1000),
    add column pull_delay_ms bigint not null default 300000 check (pull_delay_ms between 0 and 2592000000),
    add column pull_factor integer not null default 1 check (pull_factor between 1 and 100),
    add column pull_delay_max_ms bigint not null default 86400000 check (pull_delay_max_ms between 0 and 2592000000),
    add column pull_halts boolean not null default false,
    -- The tokens of leases are made with it, so that nobody guesses one. 244 random bits.
    add column lease_secret bytea not null check (length(lease_secret) = 32)
               default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    add constraint queues_pull_delays check (pull_delay_ms <= pull_delay_max_ms),
    -- What waits in a pulled queue without a notification is found by what is written of facets with a limit.
    add constraint queues_pulled_with_a_limit check (not pulled or in_flight_max is not null);

create function wakeq.is_pulled(queue text) returns boolean language sql stable
return exists (select from wakeq.queues q where q.name = is_pulled.queue and q.pulled);

-- The token of a lease: the number of the claim, which it is good for alone, and a check.
create function wakeq.lease_token(secret bytea, id uuid, claims integer) returns text language sql immutable strict
return lpad(to_hex(claims), 8, '0')
    || encode(substring(sha256(secret || uuid_send(id) || int4send(claims)) from 1 for 16), 'hex');

-- The canvases with copies of a pulled queue that might be taken, though they are not in the rotation: because they became due,
-- were given back, or were lost. Those of the first `most` canvases with copies, and of as many after one of them.
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
                           > (coalesce(f.head_at, '-infinity'), coalesce(f.head_id, '00000000-0000-0000-0000-000000000000')))
            or exists (select from wakeq.events_v2 e
                        where e.id = any (f.running || f.recalled) and e.queue = of_queue and e.canvas_id = c.canvas_id
                          and (e.locked_at is null or e.locked_at < moment - lease)
                          and e.delay_until <= moment and e.notify_at is not null))
       and not wakeq.facet_holds(of_queue, c.canvas_id, lease);
end
$$;

-- Puts these canvases into the rotation; whether there are any. As `announce`, it waits for no disk.
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

-- Turns for those who pull. With the rights of the schema's owner: whoever serves the API takes turns of these queues, and of no others.
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
    select t.id, t.canvas_id, t.module, t.name, t.modifier, t.value, t.retries, t.delay_until, t.enqueued_at, t.locked_at,
           t.claims, t.losses, t.took_over, t.traceparent, t.object, t.seq, t.prev, t.origin, t.is_limited,
           wakeq.lease_token(q.lease_secret, t.id, t.claims)
      from wakeq.queues q
     cross join lateral wakeq.take_turns(
           q.name, '{}', wanted, false, lease, 2147483647, 2147483647, grace, bytes_max, held_for) with ordinality as t
     where q.name = of_queue and q.pulled
     order by t.ordinality;
end
$$;

revoke all on all functions in schema wakeq from public;
