-- The log: events that are appended to streams, and never change.
--
-- Numbers come from one sequence, but transactions commit in another order. An appender therefore
-- holds a floor, and a reader reads up to the horizon, which is below the floors of all open
-- appenders: so nothing is added to the log before what was read.
--
-- The log leaves by whole partitions, oldest first. The one exception is the erasure of an entity
-- (wakeq.erase_entity in 0006).

create domain wakeq.log_metadata as text check (octet_length(value) <= 65536);

-- One sequence for the whole log. No cache: a session must not hold back numbers that it took
-- before it locked a stream.
create sequence wakeq.log_seq as bigint cache 1;

create table wakeq.log (
    seq         bigint not null,
    -- The seq of the event before it in its stream; 0 for the first.
    prev        bigint not null,
    canvas_id   uuid not null,
    category    wakeq.object_key not null,
    stream      wakeq.object_key not null,
    -- Its place in the stream: 0, 1, 2, …
    position    bigint not null,
    -- Selects the partition of its category that the stream is in: this number modulo the number of
    -- partitions.
    bucket      integer not null,
    id          uuid not null,
    name        wakeq.name not null,
    payload     wakeq.payload not null,
    metadata    wakeq.log_metadata not null default '{}',
    -- The object that it was emitted on, and its link there.
    object      wakeq.object_key,
    link_id     bigint,
    link_prev   bigint,
    -- The start of the transaction that appended it.
    appended_at timestamptz not null default now(),
    constraint log_pkey primary key (seq),
    constraint log_chain check (prev >= 0 and prev < seq and (prev = 0) = (position = 0)),
    constraint log_position check (position >= 0),
    constraint log_bucket check (bucket between 0 and 65535),
    constraint log_link check (case
        when object is null then link_id is null and link_prev is null
        else coalesce(link_prev >= 0 and link_prev < link_id, false) end)
) partition by range (seq);

-- The end of each stream, and the lock that appenders to the stream take: it keeps positions
-- unique.
create table wakeq.log_streams (
    canvas_id uuid not null,
    category  wakeq.object_key not null,
    stream    wakeq.object_key not null,
    -- The position of its last event; -1 before the first.
    position  bigint not null default -1,
    last_seq  bigint not null default 0,
    constraint log_streams_pkey primary key (canvas_id, category, stream),
    constraint log_streams_end check (position >= -1 and last_seq >= 0 and (position = -1) = (last_seq = 0))
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- Other needs of the log: a partition with an event after one of these is not dropped.
create table wakeq.log_pins (
    name text not null primary key check (length(name) between 1 and 700),
    seq  bigint not null check (seq >= 0)
);

-- One row, locked by the session that makes partitions.
create table wakeq.log_partitioning (
    one     boolean not null default true primary key check (one),
    -- All numbers below it that are still to come have a partition.
    made_to bigint not null default 0
);
insert into wakeq.log_partitioning default values;

-- Always empty. An appender locks it, which takes rights on it. A floor counts only beside this
-- lock, so a session that may merely connect cannot make a floor.
create table wakeq.log_gate (
    nothing boolean not null check (false)
);

alter table wakeq.log_gate replica identity full;

-- The transactions that are appending, and the number that was the last when each of them began to.
-- One that ends during the look may be left out, since later snapshots see what it appended; one
-- that goes on is never left out.
create view wakeq.log_appenders as
    select max(pid) as pid,
           min(((classid::bigint & 65535) << 32) | objid::bigint) filter (where locktype = 'advisory') as floor
      from pg_catalog.pg_locks
     where database = (select oid from pg_catalog.pg_database where datname = current_database())
       and (   locktype = 'advisory' and objsubid = 1 and classid::bigint >> 16 = 30577
            or locktype = 'relation' and relation = 'wakeq.log_gate'::regclass and mode = 'RowExclusiveLock')
     group by virtualtransaction
    having bool_or(locktype = 'advisory') and bool_or(locktype = 'relation');

-- For readers of a category, of a category of one canvas, and of a stream. The log as a whole is
-- read by its key.
create index log_category on wakeq.log (category, seq);
create index log_canvas_category on wakeq.log (canvas_id, category, seq);
create index log_stream on wakeq.log (canvas_id, category, stream, seq);

-- Refuses every change. wakeq.erase_entity (0006) is the exception: it sets `wakeq.erases` for the
-- length of its statement. That counts only for the owner of the tables, with whose rights that
-- function runs; no other role may delete here anyway.
create function wakeq.log_never_changes() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and current_setting('wakeq.erases', true) = 'an entity'
       and current_user = (select pg_catalog.pg_get_userbyid(relowner) from pg_catalog.pg_class where oid = tg_relid)
    then
        return null;
    end if;
    raise exception 'the log is never changed: % on wakeq.% is refused', tg_op, tg_table_name
        using errcode = 'restrict_violation',
              hint = 'Append what is right now; whole partitions go by the retention of the log (WAKEQ_KEEP_LOG).';
end $$;
create trigger log_never_changes before update or delete or truncate on wakeq.log
    for each statement execute function wakeq.log_never_changes();
alter table wakeq.log enable always trigger log_never_changes;

-- The partition of a number is the table wakeq.log_ followed by this quotient.
create function wakeq.log_partition_of(seq bigint) returns bigint language sql immutable parallel safe
return log_partition_of.seq / 5000000;

-- Makes the partitions for this many numbers ahead, unless another session is making some; returns
-- how many it made. It runs with the rights of the schema's owner, since roles that append may not
-- create tables. Appenders are not locked out of the parent.
create function wakeq.add_log_partitions(ahead bigint) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    last bigint := coalesce(pg_sequence_last_value('wakeq.log_seq'), 0);
    made integer := 0;
    part text;
begin
    if ahead not between 0 and 50000000 then
        raise exception 'partitions are made for at most 50,000,000 numbers ahead';
    end if;
    for number in wakeq.log_partition_of(last + 1) .. wakeq.log_partition_of(last + ahead) loop
        part := 'log_' || number;
        continue when to_regclass('wakeq.' || part) is not null;
        perform from wakeq.log_partitioning for update skip locked;
        exit when not found;
        continue when to_regclass('wakeq.' || part) is not null;
        execute format('create table wakeq.%I (like wakeq.log including all)', part);
        execute format('create trigger log_never_changes before update or delete or truncate on wakeq.%I
                        for each statement execute function wakeq.log_never_changes()', part);
        execute format('alter table wakeq.%I enable always trigger log_never_changes', part);
        execute format('alter table wakeq.log attach partition wakeq.%I for values from (%s) to (%s)',
                       part, number * 5000000, (number + 1) * 5000000);
        update wakeq.log_partitioning set made_to = greatest(made_to, (number + 1) * 5000000);
        made := made + 1;
    end loop;
    return made;
end $$;

-- Taken by an appender before its first number: until its transaction has ended, no reader reads
-- further than the number that was the last one then. A lock, unlike a row, is seen by every
-- session before the commit. It is never waited for: other appenders share it, and if a stranger
-- holds the key alone, any lower number is as good a floor. Once in a transaction is enough,
-- because the first floor is the lowest.
create function wakeq.log_floor() returns bigint language plpgsql volatile as $$
declare
    own  text := pg_current_xact_id()::text || '/';
    held text := coalesce(current_setting('wakeq.log_floor', true), '');
    last bigint;
begin
    if starts_with(held, own) then
        return split_part(held, '/', 2)::bigint;
    end if;
    lock table wakeq.log_gate in row exclusive mode;
    last := coalesce(pg_sequence_last_value('wakeq.log_seq'), 0);
    while not pg_try_advisory_xact_lock_shared((30577::bigint << 48) | last) loop
        last := last - 1;
        if last < 0 then
            raise exception 'no floor of the log is free' using errcode = 'lock_not_available',
                hint = 'Another session holds advisory locks with the keys of wakeq: `wakeq doctor` names it.';
        end if;
    end loop;
    perform set_config('wakeq.log_floor', own || last::text, true);
    return last;
end $$;

-- Up to which number the log is complete for a statement that begins after this one, whatever is
-- still open; and the last number that was taken. It is right because of the order of the two
-- looks: a number up to `last` was taken before the first look, so its appender had the lock of its
-- floor before the second look. If the appender still has it, the bound is below the number. If
-- not, its transaction has ended, and a later snapshot sees what it appended.
create function wakeq.log_horizon(out readable bigint, out last bigint) language plpgsql volatile as $$
declare
    lowest bigint;
begin
    last := coalesce(pg_sequence_last_value('wakeq.log_seq'), 0);
    select min(floor) into lowest from wakeq.log_appenders;
    readable := least(last, lowest);
end $$;

-- Drops the first partition if all of its events are older than this, and than wakeq.least_kept has
-- it, and nothing needs one of them: no consumer group (0006), no pin, and no open appender. Roles
-- that append cannot choose when an event was appended. Returns its name, or null. Whole
-- partitions leave the log in no other way. Appenders wait behind this function's lock, so it waits
-- for it no longer than they do.
create function wakeq.drop_log_partition(kept interval) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '150ms' as $$
declare
    part   text;
    number bigint;
    beyond bigint;
    newest timestamptz;
    bound  constant interval := wakeq.kept_for('log', kept);
begin
    if bound is null then
        return null;
    end if;
    select min(substr(relname, 5)::bigint) into number
      from pg_class join pg_inherits on inhrelid = pg_class.oid
     where inhparent = 'wakeq.log'::regclass and relname ~ '^log_[0-9]{1,12}$';
    part := 'log_' || number;
    beyond := (number + 1) * 5000000;
    if number is null or beyond > (select readable from wakeq.log_horizon())
       or exists (select from wakeq.consumer_positions where position < beyond - 1)
       or exists (select from wakeq.log_pins where seq < beyond - 1)
    then
        return null;
    end if;
    execute format(
        'select max(appended_at) from (select appended_at from wakeq.%I order by seq desc limit 1000) as last', part)
       into newest;
    if newest > now() - bound then
        return null;
    end if;
    execute format('alter table wakeq.log detach partition wakeq.%I', part);
    execute format('drop table wakeq.%I', part);
    return part;
end $$;

select wakeq.add_log_partitions(10000000);

-- After the partitions above, which are made like the log is at that moment, comments included.
comment on table wakeq.log is
    'What happened, in order; never changed, but for entities that are erased. Read it up to wakeq.log_horizon() only';
comment on column wakeq.log.seq is 'From one sequence; grows along a stream, and numbers may be missing';

revoke all on all functions in schema wakeq from public;
