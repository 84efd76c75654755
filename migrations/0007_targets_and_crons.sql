-- HTTP targets and crons: handlers outside our programs, and events that nobody emits.
--
-- A target is a handler that is reached over HTTP: the row says where its events are sent, how they
-- are tried again, and what signs them. It is looked up for each event, and never cached.
--
-- A cron is a schedule. Its row alone says when the next tick is and what a tick emits, so no event
-- is read to find out. The session that emits a tick moves the row in the same transaction, which
-- makes each tick one event.

-- For how many seconds events are kept after they have completed, failed and been cancelled.
create domain wakeq.keep_times as integer[] check (
    cardinality(value) = 3 and array_position(value, null) is null and 0 <= all (value) and 7776000 >= all (value));

create table wakeq.http_targets (
    canvas_id       uuid not null,
    module          wakeq.name not null,
    name            wakeq.name not null,
    modifier        wakeq.name not null,
    url             text not null check (octet_length(url) between 1 and 2048),
    retries         integer not null check (retries between 0 and 1000),
    delay_ms        bigint not null check (delay_ms between 0 and 2592000000),
    factor          integer not null check (factor between 1 and 100),
    delay_max_ms    bigint not null check (delay_max_ms between 0 and 2592000000),
    timeout_ms      bigint not null check (timeout_ms between 1000 and 3600000),
    concurrency     integer check (concurrency between 1 and 10000),
    audience        text check (octet_length(audience) between 1 and 500),
    -- What signs requests: nonce, ciphertext and tag of AES-256-GCM under the deployment's key of
    -- this id, bound to canvas and address. Without an id it is the secret itself, where the
    -- deployment allows that.
    secret          bytea not null,
    secret_key      text check (secret_key ~ '^[0-9a-f]{16}$'),
    -- The previous secret signs too until `previous_until`; within an hour after that it is
    -- cleared.
    previous_secret bytea,
    previous_key    text check (previous_key ~ '^[0-9a-f]{16}$'),
    previous_until  timestamptz,
    -- Changes with each registration: an answer of the target that was here before says nothing
    -- about this one.
    revision        uuid not null default gen_random_uuid(),
    created_at      timestamptz not null default now(),
    created_by      text not null check (length(created_by) between 1 and 200),
    updated_at      timestamptz not null default now(),
    updated_by      text not null check (length(updated_by) between 1 and 200),
    -- An event that dies halts the lane of its object.
    halts           boolean not null default false,
    -- For how long its events are kept after they have ended. Null: not at all.
    keep_s          wakeq.keep_times,
    -- Since when nothing is sent to it: it answered 410 Gone. Its events wait as for a handler that
    -- no worker knows. A registration clears it, and so does unpausing the handler.
    gone_at         timestamptz,
    -- Headers of its own: their names, and all of them as `secret` is stored.
    header_names    text[] not null default '{}' check (
        cardinality(header_names) <= 20 and array_position(header_names, null) is null),
    headers         bytea check (octet_length(headers) <= 8300),
    headers_key     text check (headers_key ~ '^[0-9a-f]{16}$'),
    primary key (canvas_id, module, name, modifier),
    constraint http_targets_secret check (
        octet_length(secret) between 24 and 64 and secret_key is null or octet_length(secret) between 52 and 92),
    constraint http_targets_previous_secret check (
        octet_length(previous_secret) between 24 and 64 and previous_key is null
        or octet_length(previous_secret) between 52 and 92),
    constraint http_targets_previous_for_a_while check ((previous_secret is null) = (previous_until is null)),
    constraint http_targets_named_headers check (
        (headers is null) = (cardinality(header_names) = 0) and (headers is not null or headers_key is null)),
    constraint http_targets_delays check (delay_ms <= delay_max_ms)
);

create table wakeq.cron_records (
    canvas_id     uuid not null,
    name          wakeq.name not null,
    expression    text not null check (octet_length(expression) between 1 and 256),
    zone          text not null check (octet_length(zone) between 1 and 64),
    modifier      wakeq.name not null,
    value         wakeq.payload not null check (octet_length(value) <= 65536),
    -- What becomes of ticks that no process emitted in time.
    missed        text not null check (missed in ('skip', 'once', 'all')),
    -- The first tick that was not emitted, and the fence: the session that emits a tick moves it in
    -- the same transaction. Null while paused.
    next_at       timestamptz,
    -- The last tick that was emitted and has come, and its event, whatever became of that.
    last_at       timestamptz,
    last_id       uuid,
    ticks         bigint not null default 0 check (ticks >= 0),
    -- Events that were emitted ahead of their ticks. A pause, a change or a deletion takes them
    -- back. An event that it cannot take back, because it ran early, stays noted: its tick is not
    -- emitted again.
    ahead         uuid[] not null default '{}',
    ahead_at      timestamptz[] not null default '{}',
    paused_at     timestamptz,
    paused_by     text check (length(paused_by) between 1 and 200),
    paused_reason text check (length(paused_reason) <= 1000),
    created_by    text not null check (length(created_by) between 1 and 200),
    created_at    timestamptz not null,
    changed_at    timestamptz not null,
    -- The most events that it emits within one minute: one for each second that its expression
    -- names.
    minute_ticks  smallint not null default 1 check (minute_ticks between 1 and 60),
    constraint cron_records_pkey primary key (canvas_id, name),
    constraint cron_records_ahead check (cardinality(ahead) = cardinality(ahead_at)),
    constraint cron_records_last check ((last_at is null) = (last_id is null)),
    constraint cron_records_moments check (
        next_at >= '0001-01-01Z' and next_at < '10000-01-01Z'
        and last_at >= '0001-01-01Z' and last_at < '10000-01-01Z'),
    constraint cron_records_paused check (
        (paused_at is null) = (paused_by is null) and (paused_at is null or next_at is null))
) with (
    -- Each tick leaves a dead entry in the index by which the minute's statement finds what is due.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

comment on column wakeq.cron_records.next_at is
    'The first tick that was not emitted; the process that emits it moves this in the same transaction';

create index cron_records_due on wakeq.cron_records (next_at) where next_at is not null;
