-- Error groups: dead events that died of the same error, and which of these errors are known.
--
-- A group is a handler, a cause and the fingerprint of the last error. Each dead event has the id
-- of its group in a column, so that a canvas's dead events are grouped by reading them once. An
-- operator marks a group as known, and whoever looks next sees that somebody has looked before.

-- What the same error says each time: its first line, with `#` for what varies, and at most 200
-- characters of it. What varies is quoted texts, queries of URLs, uuids and words with digits, and
-- numbers that only points and the like join count as one. ErrorGroupId of src/event/error_group.rs
-- says the same of every error.
create function wakeq.error_fingerprint(error text) returns text
language plpgsql immutable parallel safe as $$
declare
    line text collate "C" := left(split_part(ltrim(coalesce(error, ''), E' \t\r\n'), E'\n', 1), 1000);
begin
    line := regexp_replace(line, '"[^"]*"|`[^`]*`|(?<![A-Za-z0-9])''[^'']*''', '''#''', 'g');
    line := regexp_replace(line, '[?][^ ]*=[^ ]*', '?#', 'g');
    line := regexp_replace(
        line,
        '[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}|[A-Za-z0-9]*[0-9][A-Za-z0-9]*',
        '#', 'g');
    line := regexp_replace(line, '#([.,:_+-]+#)+', '#', 'g');
    return rtrim(left(line, 200), E' \t\r\n');
end
$$;

-- The id of the group: as random as an id that is made here, 122 bits of SHA-256, marked as a uuid
-- of version 8. The same error has the same id on every canvas, so an id alone names nothing.
create function wakeq.error_group(module text, name text, cause text, error text) returns uuid
language plpgsql immutable parallel safe as $$
declare
    -- Neither a name nor a cause has a slash.
    told  text := concat_ws('/', module, name, cause, wakeq.error_fingerprint(error));
    bytes bytea := substring(sha256('wakeq error group'::bytea || convert_to(told, 'UTF8')) from 1 for 16);
begin
    bytes := set_byte(set_byte(bytes, 6, get_byte(bytes, 6) & 15 | 128), 8, get_byte(bytes, 8) & 63 | 128);
    return encode(bytes, 'hex')::uuid;
end
$$;

-- Not in 0001: its functions stand here. The statement that moves an event to the dead ones, and
-- whatever else writes a row, need not know of it.
alter table wakeq.dead_events add column error_group uuid
    generated always as (wakeq.error_group(module, name, cause, last_error)) stored;

-- Dead events by canvas and by handler, with all that their groups and counts are made of, so that
-- neither reads a row. Their conditions hold for every row, as those of 0001: not for statements
-- about ids.
create index dead_events_canvas on wakeq.dead_events (canvas_id, died_at, id) include (error_group, queue)
    where died_at > '-infinity';
create index dead_events_handler on wakeq.dead_events (canvas_id, module, name, died_at, id)
    include (error_group, queue) where module <> '';
-- The events of a group in the order of the lists. A statement that names a group is about those
-- that have one, which is all of them; one about ids is not.
create index dead_events_group on wakeq.dead_events (canvas_id, error_group, died_at, id) include (queue)
    where error_group is not null;

-- Groups that an operator has marked as known.
create table wakeq.known_errors (
    canvas_id   uuid not null,
    error_group uuid not null,
    note        text check (length(note) between 1 and 1000),
    known_by    text not null check (length(known_by) between 1 and 200),
    known_at    timestamptz not null default now(),
    -- When the expiry last found dead events of the group, or the mark was set.
    looked_at   timestamptz not null default now(),
    constraint known_errors_pkey primary key (canvas_id, error_group)
);

create index known_errors_age on wakeq.known_errors (looked_at);

revoke all on all functions in schema wakeq from public;
