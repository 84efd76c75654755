-- What reads the log: consumer groups, and the processors of entities.
--
-- A group stores a position for each source that it reads. A broker in each process shares the
-- sources of a group among its subscribers: it allocates them under a term of the coordinator, and
-- every owner writes under its own epoch, so that an owner that was replaced writes nothing.
--
-- An entity is state in memory: the fold of its events in the log. Its processor is a consumer of
-- the type's inbox. Kept here are snapshots, and what became of the events that were sent.

-- How far consumer groups have come in the log.
create table wakeq.consumer_positions (
    consumer_group wakeq.name not null,
    -- The source as text, such as category/companies/3-of-f.
    source     text not null check (length(source) between 1 and 700),
    -- The seq of the last event that is done; 0 before the first.
    position   bigint not null default 0 check (position >= 0),
    -- The epoch under which it was opened. It only grows; a commit under another one is refused.
    epoch      bigint not null default 0 check (epoch >= 0),
    updated_at timestamptz not null default now(),
    -- The event after the position, if it fails: since when, how often, and why.
    failing_seq      bigint,
    failing_since    timestamptz,
    failing_attempts integer check (failing_attempts > 0),
    failing_error    text check (octet_length(failing_error) <= 8000),
    constraint consumer_positions_failing check (
        num_nulls(failing_seq, failing_since, failing_attempts, failing_error) in (0, 4)),
    constraint consumer_positions_pkey primary key (consumer_group, source)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- Events that a group gave up, in full: the log may have dropped them by the time somebody looks.
create table wakeq.consumer_dead (
    consumer_group wakeq.name not null,
    source     text not null check (length(source) between 1 and 700),
    seq        bigint not null,
    id         uuid not null,
    canvas_id  uuid not null,
    category   wakeq.object_key not null,
    stream     wakeq.object_key not null,
    name       wakeq.name not null,
    payload    wakeq.payload not null,
    attempts   integer not null check (attempts > 0),
    last_error text not null,
    died_at    timestamptz not null default now(),
    -- Since when it is to be tried again; null if it is not.
    redrive_at timestamptz,
    constraint consumer_dead_pkey primary key (consumer_group, source, seq)
);

-- The processes with a broker.
create table wakeq.nodes (
    node_id             uuid not null primary key,
    heartbeat_timestamp timestamptz not null default now(),
    -- The end of its lease: after this it no longer counts.
    expires_at          timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- The members of groups, each on a node.
create table wakeq.subscribers (
    subscriber_name     wakeq.name not null,
    subscriber_id       uuid not null primary key,
    node_id             uuid not null,
    -- Stands still while the subscriber is unhealthy.
    heartbeat_timestamp timestamptz not null default now(),
    expires_at          timestamptz not null,
    -- The sources that it could work on, and their number.
    requests            json not null check (octet_length(requests::text) <= 1048576),
    request_count       integer not null check (request_count between 1 and 1024),
    -- The reason why it cannot work, if it cannot.
    unhealthy           text check (octet_length(unhealthy) <= 2000),
    -- It has stopped work on all that was taken from it up to this epoch of its subscription.
    confirmed_epoch     bigint not null default 0,
    -- A subscription refers to the subscriber on the node where it runs.
    constraint subscribers_node unique (subscriber_id, node_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Every write of a subscription has a higher epoch than all writes before it.
create sequence wakeq.allocation_epochs cache 1;

-- What the coordinator gives to each subscriber.
create table wakeq.subscriptions (
    subscriber_name          wakeq.name not null,
    subscriber_id            uuid not null primary key,
    node_id                  uuid not null,
    subscriber_event_sources json not null,
    -- What was taken from it. Nobody gets it before the subscriber has confirmed this epoch or is
    -- gone.
    releasing                json not null,
    epoch                    bigint not null check (epoch > 0),
    -- The term of the coordinator that wrote it.
    term                     bigint not null check (term > 0),
    updated_at               timestamptz not null default now(),
    -- A subscriber that is not registered, or is gone, gets nothing.
    constraint subscriptions_subscriber foreign key (subscriber_id, node_id)
        references wakeq.subscribers (subscriber_id, node_id) on delete cascade
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Leases with a term, such as that of the coordinator.
create table wakeq.locks (
    name       wakeq.name not null primary key,
    owner      uuid not null,
    -- Grows each time that the lock is taken.
    term       bigint not null check (term > 0),
    expires_at timestamptz not null
);

-- The process that has a group which a single process works on: the one that started last, for as
-- long as it sends heartbeats.
create table wakeq.single_groups (
    consumer_group wakeq.name not null primary key,
    owner          uuid not null,
    expires_at     timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- One row for each group. To register a member, to take the group for a single process or to remove
-- it, a session first locks the row in a statement of its own: the next statement then sees all
-- that was done under the lock before.
create table wakeq.consumer_groups (
    consumer_group wakeq.name not null primary key,
    -- How often, and when last, an operator asked the group to try again what failed.
    recoveries     bigint not null default 0,
    asked_at       timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- All sources of each group: the longest list that a healthy member requests, and of lists of equal
-- length that of the newest member.
create view wakeq.subscription_sources as
    select distinct on (subscriber_name) subscriber_name, requests as event_sources, request_count as source_count
      from wakeq.subscribers
     where unhealthy is null and expires_at >= clock_timestamp()
     order by subscriber_name, request_count desc, subscriber_id desc;

create table wakeq.entities (
    entity_type   wakeq.name not null,
    canvas_id     uuid not null,
    id            wakeq.object_key not null,
    -- How many of its events are in the repository.
    version       bigint not null check (version > 0),
    -- The link of the last event that was decided: stored or rejected.
    last_link     bigint not null check (last_link > 0),
    -- A snapshot: its state after its first `state_version` events. The others are replayed.
    state         wakeq.payload,
    state_version bigint not null default 0 check (state_version between 0 and version),
    -- The seq of the last event in the snapshot.
    state_seq     bigint not null default 0 check (state_seq >= 0),
    -- The shape of the state. The program sets it, and reads no other.
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

-- The owner of each type, and the event with which owners were lost: it identifies an event that
-- kills its process.
create table wakeq.entity_owners (
    entity_type wakeq.name not null primary key,
    -- The epoch under which the inbox was opened last.
    epoch       bigint not null check (epoch > 0),
    -- It has not ended in good order.
    is_open     boolean not null default true,
    -- The seq of the event that is worked alone, and how often an owner was lost with it.
    suspect     bigint,
    losses      integer not null default 0 check (losses >= 0)
) with (fillfactor = 50);

-- Entities with an event that held up their processor or killed its process. The position of the
-- inbox passes over what is sent to them: it waits there, and is worked beside the rest of the
-- type.
create table wakeq.entity_asides (
    entity_type  wakeq.name not null,
    canvas_id    uuid not null,
    id           wakeq.object_key not null,
    -- Its events up to here are done.
    after        bigint not null check (after >= 0),
    -- Its events up to here are worked one at a time.
    alone        bigint not null check (alone >= 0),
    -- The seq of the event that is worked alone, and how often a process was lost with it.
    suspect      bigint,
    losses       integer not null default 0 check (losses >= 0),
    set_aside_at timestamptz not null default clock_timestamp(),
    constraint entity_asides_pkey primary key (entity_type, canvas_id, id)
) with (fillfactor = 50);

-- What was sent to entities, and what became of it: so that a sender can ask, and an event that is
-- sent again is recognized.
create table wakeq.entity_events (
    canvas_id      uuid not null,
    event_id       uuid not null,
    correlation_id uuid not null,
    entity_type    wakeq.name not null,
    entity         wakeq.object_key not null,
    name           wakeq.name not null,
    -- Its link in the inbox: its seq, and the seq of the event before it in its stream.
    link_id        bigint not null,
    link_prev      bigint not null,
    status         text not null default 'accepted' check (status in ('accepted', 'processed', 'failed')),
    -- The version of the entity with this event, if the event is in the repository and that is
    -- known.
    version        bigint check (version > 0),
    result         wakeq.payload,
    error          text,
    -- The events that were emitted because of it.
    follow_ups     uuid[] not null default '{}',
    sent_at        timestamptz not null default now(),
    ended_at       timestamptz,
    -- When it was old enough to be forgotten and was kept, because an event that followed from it
    -- had not ended and may be answered.
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

-- What is old enough to be forgotten.
create index consumer_dead_died on wakeq.consumer_dead (died_at);
create index consumer_dead_latest on wakeq.consumer_dead (consumer_group, seq, source);
-- What is kept of an entity's events, for its erasure.
create index consumer_dead_stream on wakeq.consumer_dead (canvas_id, category, stream);
create index consumer_dead_redrive on wakeq.consumer_dead (consumer_group, source, seq) where redrive_at is not null;

create index subscribers_group on wakeq.subscribers (subscriber_name, subscriber_id);
create index subscriptions_group on wakeq.subscriptions (subscriber_name, subscriber_id);
create index subscriptions_node on wakeq.subscriptions (node_id, subscriber_id);

-- Read in pages, in the order in which they were sent. The condition holds for every row, and keeps
-- statements about an event out (0001).
create index entity_events_correlation on wakeq.entity_events (canvas_id, correlation_id, link_id)
    where correlation_id is not null;
-- The ids of a correlation's other events after a link. No statistics make it read the canvas.
create function wakeq.correlated_events(canvas uuid, correlation uuid, after_link bigint, most bigint)
returns setof uuid
language sql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select event_id from wakeq.entity_events
     where canvas_id = canvas and correlation_id = correlation and event_id <> correlation and link_id > after_link
     order by link_id limit most
$$;
-- What is old enough to be forgotten; an event that has not ended never is.
create index entity_events_ended on wakeq.entity_events (coalesce(held_at, ended_at)) where ended_at is not null;
-- What was sent and is not processed yet: counted for a canvas, and what expires.
create index entity_events_accepted on wakeq.entity_events (canvas_id, sent_at) where status = 'accepted';

-- Erases a page of what is stored of an entity, for an erasure that stands in its inbox: at most
-- `most` rows after the place `after` of the log, and 4 MiB of them in proportion. Returns up to
-- where the entity is erased, or null when nothing is left. Each page begins where the one before
-- it ended, since the rows of that one stay in the indexes until they are vacuumed. The caller
-- holds the position of the inbox.
--
-- What was sent after the erasure stays, and so do the lines of erasures in entity_events. Single
-- events leave the log in no other way: the trigger of the log lets nothing else through.
create function wakeq.erase_entity(canvas uuid, of_type text, entity text, erasure bigint, after bigint, most integer)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    repository constant text := 'entities:' || of_type;
    inbox      constant text := 'entities:' || of_type || '.inbox';
    up_to      bigint;
    seqs       bigint[];
    ids        uuid[];
    more       boolean;
    dead       integer;
    deaths     constant integer := (most + 9) / 10; -- fewer, because their bytes are not counted
begin
    if most is null or most not between 1 and 1000 then
        raise exception 'a page is of 1 to 1,000 rows';
    end if;
    -- An erasure that was asked for again erases what came before it the first time.
    select coalesce(substring(l.metadata from '^\{"repost":\{"id":([0-9]{1,18}),')::bigint, l.seq) into up_to
      from wakeq.log l
     where l.seq = erasure and l.canvas_id = canvas and l.category = inbox and l.stream = entity
       and position('"erases":true' in l.metadata) > 0;
    if up_to is null then
        raise exception 'event % of the log does not erase %/%', erasure, of_type, entity
            using errcode = 'restrict_violation';
    end if;
    -- The entity has decided a later event, so the erasure was carried out before.
    if exists (select from wakeq.entities e
                where e.entity_type = of_type and e.canvas_id = canvas and e.id = entity and e.last_link > up_to) then
        return null;
    end if;
    -- First, so that readers find nothing, and never half of it.
    delete from wakeq.entities e where e.entity_type = of_type and e.canvas_id = canvas and e.id = entity;
    delete from wakeq.log_streams s where s.canvas_id = canvas and s.category = repository and s.stream = entity;
    with found as materialized (
        (select l.seq, l.id, false as is_erasure, octet_length(l.payload) + octet_length(l.metadata) as size
           from wakeq.log l
          where l.canvas_id = canvas and l.category = repository and l.stream = entity
            and l.seq > after and coalesce(substring(l.metadata from '"link":\{"id":([0-9]{1,18}),')::bigint, 0) < up_to
          order by l.seq limit most + 1)
         union all
        (select l.seq, l.id, position('"erases":true' in l.metadata) > 0,
                octet_length(l.payload) + octet_length(l.metadata)
           from wakeq.log l
          where l.canvas_id = canvas and l.category = inbox and l.stream = entity and l.seq > after and l.seq < up_to
          order by l.seq limit most + 1)
    ), page as (
        select f.*, row_number() over rows as number, sum(f.size) over rows as bytes from found f
        window rows as (order by f.seq rows unbounded preceding)
    ), fitting as (
        select p.*, p.number = 1 or p.number <= most and p.bytes <= 4194 * most::bigint as fits from page p
    )
    select array_agg(f.seq order by f.seq) filter (where f.fits),
           array_agg(f.id) filter (where f.fits and not f.is_erasure),
           bool_or(not f.fits)
      into seqs, ids, more from fitting f;
    perform set_config('wakeq.erases', 'an entity', true);
    delete from wakeq.log l
     where l.seq = any (seqs) and l.seq between seqs[1] and seqs[cardinality(seqs)] and l.canvas_id = canvas
       and l.stream = entity and l.category in (repository, inbox);
    perform set_config('wakeq.erases', '', true);
    delete from wakeq.entity_events e
     where e.canvas_id = canvas and e.event_id = any (ids) and e.entity_type = of_type
       and e.entity = erase_entity.entity and e.link_id < up_to;
    -- And what groups gave up of it.
    delete from wakeq.consumer_dead d where (d.consumer_group, d.source, d.seq) in (
        select c.consumer_group, c.source, c.seq from wakeq.consumer_dead c
         where c.canvas_id = canvas and c.stream = entity
           and (c.category = repository or c.category = inbox and c.seq < up_to) limit deaths);
    get diagnostics dead = row_count;
    return case when more or dead = deaths then coalesce(seqs[cardinality(seqs)], after) end;
end $$;

-- What processes may do with each table of the log and of what reads it: a part of
-- wakeq.table_rights (0008).
create function wakeq.log_table_rights() returns table (name text, api text, worker text)
language sql immutable set search_path = pg_catalog, pg_temp as $$
    values
        ('consumer_dead',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('consumer_groups',      'select, insert, update, delete', 'select, insert, update, delete'),
        ('consumer_positions',   'select, insert, update, delete', 'select, insert, update, delete'),
        ('entities',             'select, insert, update',        'select, insert, update'),
        ('entity_asides',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('entity_events',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('entity_owners',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('locks',                'select, insert, update',         'select, insert, update'),
        -- As for the audit log: nobody chooses when an event was appended.
        ('log',                  'select',                         'select'),
        ('log_appenders',        'select',                         'select'),
        ('log_gate',             'insert',                         'insert'),
        ('log_partitioning',     'select',                         'select'),
        ('log_pins',             'select, insert, delete',        'select, insert, delete'),
        ('log_streams',          'select, insert, update',         'select, insert, update'),
        ('nodes',                'select, insert, update, delete', 'select, insert, update, delete'),
        ('single_groups',        'select, insert, update, delete', 'select, insert, update, delete'),
        ('subscribers',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('subscriptions',        'select, insert, update, delete', 'select, insert, update, delete')
$$;

revoke all on all functions in schema wakeq from public;
