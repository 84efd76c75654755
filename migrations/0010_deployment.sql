-- What makes this deployment this one: known to its processes, and told to nobody.

create table wakeq.deployment (
    sole      boolean not null primary key default true check (sole),
    -- What this deployment's own deliveries are known by.
    namespace uuid not null default gen_random_uuid(),
    -- Its own origins and audiences, as the processes that serve its API say them: nothing is delivered to these.
    names     text[] not null default '{}' check (cardinality(names) <= 100),
    -- The checks in the texts of keys are made with it, so that a made-up key is refused without a look at the keys. 244
    -- random bits.
    key_check_secret bytea not null check (length(key_check_secret) = 32)
                     default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);

insert into wakeq.deployment default values;
