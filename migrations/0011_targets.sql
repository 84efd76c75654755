-- Handlers that are reached over HTTP: where their events are sent, how they are tried again, and what signs them.

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
    -- What requests are signed with: nonce, ciphertext and tag of AES-256-GCM under the deployment's key of this id, bound to
    -- canvas and address. Without an id it is the secret itself, where the deployment allows that.
    secret          bytea not null,
    secret_key      text check (secret_key ~ '^[0-9a-f]{16}$'),
    -- The one before it still signs until then; it is cleared within the hour after.
    previous_secret bytea,
    previous_key    text check (previous_key ~ '^[0-9a-f]{16}$'),
    previous_until  timestamptz,
    -- Another with each registration: an answer of the target that was here before says nothing about this one.
    revision        uuid not null default gen_random_uuid(),
    created_at      timestamptz not null default now(),
    created_by      text not null check (length(created_by) between 1 and 200),
    updated_at      timestamptz not null default now(),
    updated_by      text not null check (length(updated_by) between 1 and 200),
    primary key (canvas_id, module, name, modifier),
    constraint http_targets_secret check (
        octet_length(secret) between 24 and 64 and secret_key is null or octet_length(secret) between 52 and 92),
    constraint http_targets_previous_secret check (
        octet_length(previous_secret) between 24 and 64 and previous_key is null
        or octet_length(previous_secret) between 52 and 92),
    constraint http_targets_previous_for_a_while check ((previous_secret is null) = (previous_until is null)),
    constraint http_targets_delays check (delay_ms <= delay_max_ms)
);
