-- Entities: what their processors keep of them, and what became of the events that were sent to them. Expands only.

create table wakeq.entities (
    entity_type   wakeq.name not null,
    canvas_id     uuid not null,
    id            wakeq.object_key not null,
    -- How many events of it are in the repository.
    version       bigint not null check (version > 0),
    -- The link of the last event that was decided upon: stored or rejected.
    last_link     bigint not null check (last_link > 0),
    -- A snapshot: its state after its first `state_version` events; the rest is replayed.
    state         wakeq.payload,
    state_version bigint not null default 0 check (state_version between 0 and version),
    -- Where the last of them is in the log.
    state_seq     bigint not null default 0 check (state_seq >= 0),
    -- Of which shape the state is: the program says it, and reads no other.
    shape         integer not null default 0 check (shape >= 0),
    updated_at    timestamptz not null default now(),
    constraint entities_pkey primary key (entity_type, canvas_id, id),
    constraint entities_snapshot check ((state is null) = (state_version = 0) and (state is null) = (state_seq = 0))
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

comment on column wakeq.entities.version is 'How many events of it are in the repository: the category entities:TYPE';

-- The owner of each type, and the event that owners were lost with: what ends its process is found by that.
create table wakeq.entity_owners (
    entity_type wakeq.name not null primary key,
    -- Under which the inbox was opened last.
    epoch       bigint not null check (epoch > 0),
    -- It has not come to an orderly end.
    is_open     boolean not null default true,
    -- The seq of the event that is worked alone, and how often that came to nothing.
    suspect     bigint,
    losses      integer not null default 0 check (losses >= 0)
) with (fillfactor = 50);

-- Entities with an event that held up its processor, or ended its process. The position of the inbox passes over what is sent to
-- them; it waits there, and is worked beside the rest of the type.
create table wakeq.entity_asides (
    entity_type  wakeq.name not null,
    canvas_id    uuid not null,
    id           wakeq.object_key not null,
    -- Its events up to here are done.
    after        bigint not null check (after >= 0),
    -- Its events up to here are worked one at a time.
    alone        bigint not null check (alone >= 0),
    -- The seq of the event that is worked alone, and how often that came to nothing.
    suspect      bigint,
    losses       integer not null default 0 check (losses >= 0),
    set_aside_at timestamptz not null default clock_timestamp(),
    constraint entity_asides_pkey primary key (entity_type, canvas_id, id)
) with (fillfactor = 50);

-- What was sent to entities, and what became of it: for who asks, and so that an event that is sent again is known.
create table wakeq.entity_events (
    canvas_id      uuid not null,
    event_id       uuid not null,
    correlation_id uuid not null,
    entity_type    wakeq.name not null,
    entity         wakeq.object_key not null,
    name           wakeq.name not null,
    -- Its link in the inbox: its seq, and that of the event before it in its stream.
    link_id        bigint not null,
    link_prev      bigint not null,
    status         text not null default 'accepted' check (status in ('accepted', 'processed', 'failed')),
    -- The version of the entity with it, if it is in the repository and that is known.
    version        bigint check (version > 0),
    result         wakeq.payload,
    error          text,
    -- The events that were emitted because of it.
    follow_ups     uuid[] not null default '{}',
    sent_at        timestamptz not null default now(),
    ended_at       timestamptz,
    -- When it was old enough to be forgotten, and was kept: an event that followed from it had not ended, and may be answered.
    held_at        timestamptz,
    constraint entity_events_pkey primary key (canvas_id, event_id),
    constraint entity_events_link check (link_prev >= 0 and link_prev < link_id),
    constraint entity_events_ended check ((status = 'accepted') = (ended_at is null)),
    constraint entity_events_stored check (version is null or status = 'processed')
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

create index entity_events_correlation on wakeq.entity_events (canvas_id, correlation_id);
-- What is old enough to be forgotten; what has not ended is not.
create index entity_events_ended on wakeq.entity_events (coalesce(held_at, ended_at)) where ended_at is not null;

-- Erases a page of what is stored of an entity, for an erasure that stands in its inbox: at most so many rows, and 4 MiB of them
-- in proportion, after this place of the log; up to where it is gone, or null when nothing is left. Each page begins where the one before it ended,
-- since the rows of that are in the indexes until they are vacuumed. What was sent after the erasure stays, and so do erasures' own lines in entity_events. It is the only way by
-- which single events leave the log: the trigger there lets nothing else through. Its caller holds the position of the inbox.
create function wakeq.erase_entity(canvas uuid, of_type text, entity text, erasure bigint, after bigint, most integer) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    repository constant text := 'entities:' || of_type;
    inbox      constant text := 'entities:' || of_type || '.inbox';
    up_to      bigint;
    seqs       bigint[];
    ids        uuid[];
    more       boolean;
    dead       integer;
    -- Their bytes are not counted, so they are fewer.
    deaths     constant integer := (most + 9) / 10;
begin
    if most is null or most not between 1 and 1000 then
        raise exception 'a page is of 1 to 1,000 rows';
    end if;
    -- One that was asked for again erases what came before the first time.
    select coalesce(substring(l.metadata from '^\{"repost":\{"id":([0-9]{1,18}),')::bigint, l.seq) into up_to
      from wakeq.log l
     where l.seq = erasure and l.canvas_id = canvas and l.category = inbox and l.stream = entity
       and position('"erases":true' in l.metadata) > 0;
    if up_to is null then
        raise exception 'event % of the log does not erase %/%', erasure, of_type, entity using errcode = 'restrict_violation';
    end if;
    -- It has decided upon a later event, so this was carried out before.
    if exists (select from wakeq.entities e
                where e.entity_type = of_type and e.canvas_id = canvas and e.id = entity and e.last_link > up_to) then
        return null;
    end if;
    -- First, so that whoever reads it finds nothing, and nothing that is half there.
    delete from wakeq.entities e where e.entity_type = of_type and e.canvas_id = canvas and e.id = entity;
    delete from wakeq.log_streams s where s.canvas_id = canvas and s.category = repository and s.stream = entity;
    with found as materialized (
        (select l.seq, l.id, false as is_erasure, octet_length(l.payload) + octet_length(l.metadata) as size
           from wakeq.log l
          where l.canvas_id = canvas and l.category = repository and l.stream = entity
            and l.seq > after and coalesce(substring(l.metadata from '"link":\{"id":([0-9]{1,18}),')::bigint, 0) < up_to
          order by l.seq limit most + 1)
         union all
        (select l.seq, l.id, position('"erases":true' in l.metadata) > 0, octet_length(l.payload) + octet_length(l.metadata)
           from wakeq.log l
          where l.canvas_id = canvas and l.category = inbox and l.stream = entity and l.seq > after and l.seq < up_to
          order by l.seq limit most + 1)
    ), page as (
        select f.*, row_number() over rows as number, sum(f.size) over rows as bytes from found f
        window rows as (order by f.seq rows unbounded preceding)
    ), fitting as (
        select p.*, p.number = 1 or p.number <= most and p.bytes <= 4194 * most::bigint as fits from page p
    )
    select array_agg(f.seq order by f.seq) filter (where f.fits), array_agg(f.id) filter (where f.fits and not f.is_erasure), bool_or(not f.fits)
      into seqs, ids, more from fitting f;
    perform set_config('wakeq.erases', 'an entity', true);
    delete from wakeq.log l
     where l.seq = any (seqs) and l.seq between seqs[1] and seqs[cardinality(seqs)] and l.canvas_id = canvas and l.stream = entity
       and l.category in (repository, inbox);
    perform set_config('wakeq.erases', '', true);
    delete from wakeq.entity_events e
     where e.canvas_id = canvas and e.event_id = any (ids) and e.entity_type = of_type and e.entity = erase_entity.entity
       and e.link_id < up_to;
    -- Also what other groups gave up of it.
    delete from wakeq.consumer_dead d where (d.consumer_group, d.source, d.seq) in (
        select c.consumer_group, c.source, c.seq from wakeq.consumer_dead c
         where c.canvas_id = canvas and c.stream = entity
           and (c.category = repository or c.category = inbox and c.seq < up_to) limit deaths);
    get diagnostics dead = row_count;
    return case when more or dead = deaths then coalesce(seqs[cardinality(seqs)], after) end;
end $$;

-- A worker's role needs it; who only reads, sends or asks for an erasure does not.
revoke execute on function wakeq.erase_entity(uuid, text, text, bigint, bigint, integer) from public;
