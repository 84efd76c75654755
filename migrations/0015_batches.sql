-- Batches: a name that many events share, and an event that is emitted when the last has ended.
--
-- A batch is a row of `batches`. Its members name it in their options, and a partial index of
-- `events_v2` holds those that are left. What ends a member is a deletion of its row, of which
-- there are a dozen: so the end is counted by a trigger, in the transaction of the deletion,
-- whoever deletes. It looks at members only, and the statements of all other events stay as they
-- are. An end counts as completed, and what knows better (a death, a removal) moves it in the same
-- statement.
--
-- Members end in many sessions at once, so nothing is counted in one row: each end adds a row to
-- `batch_ends`, and their sum is the count. No two ends wait for each other. The minute's pass
-- replaces thousands of these rows by one with their sum.
--
-- A batch is over once it is closed and no member is left. Whoever has ended a member looks for
-- that afterwards, in a later statement with a snapshot of its own: of two that end the last
-- members at once, the one that commits second sees that none is left. The look locks the batch,
-- and looks again. So does the minute's pass, for what no process has looked at.

-- As a unique key; but a path can't contain . and .. as they are.
create domain wakeq.batch_name as text collate "C" check (
    octet_length(value) between 1 and 255 and value !~ '[^\x21-\x7e]' and value not in ('.', '..'));

create table wakeq.batches (
    canvas_id    uuid not null,
    name         wakeq.batch_name not null,
    -- The event that is emitted at the end: its id, which is known from the beginning, its handler,
    -- and what its value gets beside the counts, for which a KiB has to be left. One that is over
    -- has no value: it is remembered for its name, and no quota counts it.
    event_id     uuid not null,
    module       wakeq.name not null,
    handler      wakeq.name not null,
    modifier     wakeq.name not null,
    value        wakeq.payload not null,
    traceparent  wakeq.traceparent,
    opened_at    timestamptz not null default now(),
    -- Since when it has been waiting for its last member.
    closed_at    timestamptz,
    -- When its event was emitted, or when it was given up, after which it emits none.
    over_at      timestamptz,
    is_cancelled boolean not null default false,
    -- When the minute's pass has last looked at it.
    looked_at    timestamptz not null default now(),
    -- How its members have ended, once its event was emitted.
    completed    bigint not null default 0 check (completed >= 0),
    dead         bigint not null default 0 check (dead >= 0),
    cancelled    bigint not null default 0 check (cancelled >= 0),
    constraint batches_pkey primary key (canvas_id, name),
    constraint batches_canvas check (canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
    constraint batches_value_leaves_room check (octet_length(value) <= 16776192),
    constraint batches_module check (module not in ('ANSWER', 'CANVAS', 'CRON', 'QUEUE')),
    constraint batches_given_up_are_over check (not is_cancelled or over_at is not null)
);

comment on column wakeq.batches.is_cancelled is 'It was given up: its event is never emitted';

-- Those that the minute's pass looks at, the one that it has not looked at for longest first.
create index batches_looked_at on wakeq.batches (looked_at) where over_at is null;
-- Those that are to be forgotten. Only for a statement that names the condition, and so not for one
-- about a batch (0001).
create index batches_over on wakeq.batches (over_at) where over_at > '-infinity';
-- How many a canvas has that are not over, for its quota.
create index batches_open on wakeq.batches (canvas_id) where over_at is null;

-- How members have ended. Only sums count: a single row may be below zero, where it moves what
-- another has counted.
create table wakeq.batch_ends (
    canvas_id uuid not null,
    batch     wakeq.batch_name not null,
    id        bigint generated always as identity,
    completed bigint not null default 0,
    dead      bigint not null default 0,
    cancelled bigint not null default 0,
    constraint batch_ends_pkey primary key (canvas_id, batch, id)
);

-- Members that are left, of which the latest is looked for: it is likely to be the last to end, and
-- entries of those that are gone are not read again with each look.
create index events_v2_batch on wakeq.events_v2 (canvas_id, (options ->> 'batch'), id)
    where (options ->> 'batch') is not null;

-- Refuses a member of a batch that is over, or was never opened, for the trigger of inserts (0016).
-- The lock keeps the batch from being ended before the member's transaction has. It is the weakest
-- that does, since those who emit without a pause would otherwise keep the batch from being closed.
create function wakeq.join_batch(member wakeq.events_v2) returns void language plpgsql volatile as $$
declare
    is_open boolean;
begin
    if member.unique_key is not null then
        raise exception 'an event of a batch can''t have a unique key'
            using errcode = 'invalid_parameter_value', hint = 'Leave one of them out.';
    end if;
    -- By its key alone: a condition on the end could be answered by an index of all open ones.
    select b.over_at is null into is_open from wakeq.batches b
     where b.canvas_id = member.canvas_id and b.name = member.options ->> 'batch'
       for key share;
    if is_open is not true then
        raise exception 'the batch % is over, or was never opened', member.options ->> 'batch'
            using
                errcode = 'foreign_key_violation', schema = 'wakeq', table = 'events_v2',
                constraint = 'events_v2_batch_is_open', detail = member.options ->> 'batch',
                hint = 'Open the batch before you emit into it. It is over once it is closed and its members have '
                    || 'ended, and they may emit into it until then.';
    end if;
end
$$;

-- Counts the end of a member as a completion, for the trigger of deletions (0016).
create function wakeq.leave_batch(member wakeq.events_v2) returns void language plpgsql volatile as $$
begin
    insert into wakeq.batch_ends (canvas_id, batch, completed) values (member.canvas_id, member.options ->> 'batch', 1);
end
$$;

-- Whether a member of a batch is left. The index has the collation of the database. Callers pass
-- the name of a batch, which has another, and a comparison in that can't use the index.
create function wakeq.has_members(canvas uuid, batch text) returns boolean
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    perform from wakeq.events_v2 e
      where e.canvas_id = has_members.canvas and e.options ->> 'batch' = has_members.batch collate "default"
      order by e.canvas_id desc, e.options ->> 'batch' desc, e.id desc limit 1;
    return found;
end
$$;

revoke all on all functions in schema wakeq from public;
