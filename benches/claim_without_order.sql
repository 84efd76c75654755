-- The claim as it was before there were objects and queues, to be compared with that of today.

create function wakeq.claim(
    ids             uuid[],
    handlers        text[],
    canvas_handlers text[],
    lease           interval,
    losses_below    integer
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
    traceparent text
)
language plpgsql volatile as $$
#variable_conflict use_column
begin
    lock table wakeq.claim_gate in row exclusive mode;
    return query
    update wakeq.events_v2 e
       set locked_at = clock_timestamp(),
           claims = e.claims + 1,
           losses = e.losses + (e.locked_at is not null)::integer
     where e.id = any (ids)
       and e.delay_until <= clock_timestamp()
       and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
       and e.losses + (e.locked_at is not null)::integer < losses_below
       and (   e.module || '/' || e.name || '/' || e.modifier = any (handlers)
            or e.canvas_id || '/' || e.module || '/' || e.name || '/' || e.modifier = any (canvas_handlers))
       and not exists (
           select from wakeq.scheduling_rules r
            where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
              and (r.until is null or r.until > clock_timestamp()))
    returning e.id, e.canvas_id, e.module::text, e.name::text, e.modifier::text, e.value::text, e.retries,
              e.delay_until, e.enqueued_at, e.locked_at, e.claims, e.losses,
              e.losses > 0 and exists (
                  select from wakeq.events_v2 before where before.id = e.id and before.locked_at is not null),
              e.traceparent::text;
end
$$;
