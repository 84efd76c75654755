-- Answers that are given again when a request is repeated under the same key. A key is written in the transaction of the
-- events it stands for: no state "in progress" can outlive its process.

create table wakeq.idempotency_keys (
    canvas_id   uuid not null,
    -- Whose key it is: two principals may choose the same one.
    holder      text not null check (length(holder) between 1 and 200),
    key         text not null check (key ~ '^[\x21-\x7e]{1,255}$'),
    fingerprint bytea not null check (octet_length(fingerprint) between 1 and 64),
    answer      text not null check (octet_length(answer) <= 16777216),
    created_at  timestamptz not null default now(),
    primary key (canvas_id, holder, key)
);
create index idempotency_keys_age on wakeq.idempotency_keys (created_at);
