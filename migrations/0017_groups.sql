-- Consumer groups: the nodes, the subscribers on them, what each is given, and locks. Expands only.

create table wakeq.nodes (
    node_id             uuid not null primary key,
    heartbeat_timestamp timestamptz not null default now(),
    -- Its lease: after this it is not counted on any more.
    expires_at          timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

create table wakeq.subscribers (
    subscriber_name     wakeq.name not null,
    subscriber_id       uuid not null primary key,
    node_id             uuid not null,
    -- Stands still while it is unhealthy.
    heartbeat_timestamp timestamptz not null default now(),
    expires_at          timestamptz not null,
    -- The sources it could work on, and how many these are.
    requests            json not null check (octet_length(requests::text) <= 1048576),
    request_count       integer not null check (request_count between 1 and 1024),
    -- Why it can't work, if it can't.
    unhealthy           text check (octet_length(unhealthy) <= 2000),
    -- It works on nothing that had been taken from it by this epoch of its subscription.
    confirmed_epoch     bigint not null default 0,
    -- What a subscription says is said about the subscriber where it runs.
    constraint subscribers_node unique (subscriber_id, node_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

create index subscribers_group on wakeq.subscribers (subscriber_name, subscriber_id);

-- Every write of a subscription has a higher epoch than all before it.
create sequence wakeq.allocation_epochs cache 1;

create table wakeq.subscriptions (
    subscriber_name          wakeq.name not null,
    subscriber_id            uuid not null primary key,
    node_id                  uuid not null,
    subscriber_event_sources json not null,
    -- What was taken from it: given to nobody before it has confirmed this epoch, or is gone.
    releasing                json not null,
    epoch                    bigint not null check (epoch > 0),
    -- Of the coordinator that wrote it.
    term                     bigint not null check (term > 0),
    updated_at               timestamptz not null default now(),
    -- Nobody is given anything who has not been registered, or has gone.
    constraint subscriptions_subscriber foreign key (subscriber_id, node_id)
        references wakeq.subscribers (subscriber_id, node_id) on delete cascade
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

create index subscriptions_group on wakeq.subscriptions (subscriber_name, subscriber_id);
create index subscriptions_node on wakeq.subscriptions (node_id, subscriber_id);

create table wakeq.locks (
    name       wakeq.name not null primary key,
    owner      uuid not null,
    -- Grows each time it is taken.
    term       bigint not null check (term > 0),
    expires_at timestamptz not null
);

-- Which process has a group that is worked on by a single one: the latest that was started, for as long as it is heard of.
create table wakeq.single_groups (
    consumer_group wakeq.name not null primary key,
    owner          uuid not null,
    expires_at     timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- A row of each group. Whoever registers a member, takes the group for a single process, or removes it, locks it first, in a statement
-- of its own: the next one sees all that was done under the lock before.
create table wakeq.consumer_groups (
    consumer_group wakeq.name not null primary key,
    -- How often an operator has said that it is to try again what failed, and when that was last.
    recoveries     bigint not null default 0,
    asked_at       timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- All sources of each group: the longest requests of those who are well; of equals, those of the newest.
create view wakeq.subscription_sources as
    select distinct on (subscriber_name) subscriber_name, requests as event_sources, request_count as source_count
      from wakeq.subscribers
     where unhealthy is null and expires_at >= clock_timestamp()
     order by subscriber_name, request_count desc, subscriber_id desc;
