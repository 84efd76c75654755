-- What makes this deployment this one: known to its processes, and told to nobody.

create table wakeq.deployment (
    sole      boolean not null primary key default true check (sole),
    -- The ids of CloudEvents are made in it, so that no tenant can work out the ids of another.
    namespace uuid not null default gen_random_uuid(),
    -- Its own origins and audiences, as the processes that serve its API say them: nothing is delivered to these.
    names     text[] not null default '{}' check (cardinality(names) <= 100)
);

insert into wakeq.deployment default values;
