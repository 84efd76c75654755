-- Hooks: what other systems may emit by webhooks, without a key of ours.
--
-- A hook names the handler that its events are for, how its sender signs them, and the secret of
-- the signature. It is looked up for each webhook, and never cached. Whether a signature is right
-- is decided by processes of the API, since only they know the key that secrets are encrypted
-- under.

create table wakeq.hooks (
    canvas_id       uuid not null,
    name            wakeq.name not null,
    -- How its sender signs, and where the id is by which a repeat is recognized.
    kind            text not null check (kind in ('standard', 'stripe', 'github')),
    module          wakeq.name not null,
    handler         wakeq.name not null,
    modifier        wakeq.name not null,
    -- The value is a CloudEvent that has the body as its data, and not the body alone.
    enveloped       boolean not null default false,
    -- What its sender signs with: nonce, ciphertext and tag of AES-256-GCM under the deployment's
    -- key of this id, bound to canvas and name. Without an id it is the secret itself, where the
    -- deployment allows that.
    secret          bytea not null,
    secret_key      text check (secret_key ~ '^[0-9a-f]{16}$'),
    -- The previous secret is accepted too until `previous_until`; within an hour after that it is
    -- cleared.
    previous_secret bytea,
    previous_key    text check (previous_key ~ '^[0-9a-f]{16}$'),
    previous_until  timestamptz,
    created_at      timestamptz not null default now(),
    created_by      text not null check (length(created_by) between 1 and 200),
    updated_at      timestamptz not null default now(),
    updated_by      text not null check (length(updated_by) between 1 and 200),
    constraint hooks_pkey primary key (canvas_id, name),
    constraint hooks_canvas check (canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
    constraint hooks_module check (module not in ('ANSWER', 'CANVAS', 'CRON', 'QUEUE')),
    constraint hooks_secret check (
        octet_length(secret) between 16 and 256 and secret_key is null or octet_length(secret) between 44 and 284),
    constraint hooks_previous_secret check (
        octet_length(previous_secret) between 16 and 256 and previous_key is null
        or octet_length(previous_secret) between 44 and 284),
    constraint hooks_previous_for_a_while check ((previous_secret is null) = (previous_until is null))
);
