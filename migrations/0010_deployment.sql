-- What makes this deployment this one: known to its processes, and told to nobody.

create table wakeq.deployment (
    sole      boolean not null primary key default true check (sole),
    -- The ids of CloudEvents are made in it, so that no tenant can work out the ids of another.
    namespace uuid not null default gen_random_uuid(),
    -- The checks in the texts of keys are made with it, so that a made-up key is refused without a look at the keys. 244
    -- random bits.
    key_check_secret bytea not null check (length(key_check_secret) = 32)
                     default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);

insert into wakeq.deployment default values;
