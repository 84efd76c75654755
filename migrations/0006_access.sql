-- Who may do what: keys of programs and people, and the Google service accounts that are let in. A row without a canvas
-- counts on every canvas. A scope may be limited to handlers: `emit:WORKER/*`, `operate:WORKER/resize`.

create table wakeq.access_keys (
    -- The public part of the key, 12 hexadecimal digits.
    id            text not null primary key check (id ~ '^[0-9a-f]{12}$'),
    -- SHA-256 of the 256 random bits of the key. The key itself is nowhere.
    secret_sha256 bytea not null check (length(secret_sha256) = 32),
    canvas_id     uuid,
    holder        text not null check (length(holder) between 1 and 190),
    scopes        text[] not null
                  check (cardinality(scopes) between 1 and 20 and array_position(scopes, null) is null
                         and array_to_string(scopes, ' ')
                             ~ '^((admin|(emit|read|operate)(:[A-Za-z0-9_.-]{1,128}/([*]|[A-Za-z0-9_.-]{1,128}))?)( |$))+$'),
    created_at    timestamptz not null default now(),
    created_by    text not null check (length(created_by) between 1 and 200),
    expires_at    timestamptz not null,
    revoked_at    timestamptz,
    revoked_by    text check (length(revoked_by) between 1 and 200),
    last_used_at  timestamptz,
    -- One of the two places that a holder has. A revoked key has none; an expired one loses its place to the next.
    slot          smallint default null check (slot in (1, 2)),
    constraint access_keys_lifetime check (expires_at > created_at and expires_at <= created_at + interval '3653 days'),
    constraint access_keys_revoked_without_place check (revoked_at is null or slot is null),
    constraint access_keys_revoked_by_somebody check ((revoked_at is null) = (revoked_by is null))
);
create unique index access_keys_two_live on wakeq.access_keys (canvas_id, holder, slot) nulls not distinct
    where slot is not null;
create index access_keys_newest on wakeq.access_keys (canvas_id, created_at, id);

create table wakeq.service_accounts (
    id         bigint generated always as identity primary key,
    email      text not null check (length(email) between 3 and 190 and email = lower(email)),
    canvas_id  uuid,
    scopes     text[] not null
               check (cardinality(scopes) between 1 and 20 and array_position(scopes, null) is null
                         and array_to_string(scopes, ' ')
                             ~ '^((admin|(emit|read|operate)(:[A-Za-z0-9_.-]{1,128}/([*]|[A-Za-z0-9_.-]{1,128}))?)( |$))+$'),
    created_at timestamptz not null default now(),
    created_by text not null check (length(created_by) between 1 and 200),
    revoked_at timestamptz,
    revoked_by text check (length(revoked_by) between 1 and 200),
    constraint service_accounts_one_per_canvas unique nulls not distinct (email, canvas_id),
    constraint service_accounts_revoked_by_somebody check ((revoked_at is null) = (revoked_by is null))
);
