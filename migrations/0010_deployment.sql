-- What makes this deployment this one: known to its processes, and told to nobody.

create table wakeq.deployment (
    sole      boolean not null primary key default true check (sole),
    -- What this deployment's own deliveries are known by.
    namespace uuid not null default gen_random_uuid(),
    -- Its own origins and audiences, as the processes that serve its API say them: nothing is delivered to these.
    names     text[] not null default '{}' check (cardinality(names) <= 100)
);

insert into wakeq.deployment default values;
