-- Periodic work that one process at a time may do: the row lets it through when it is due.

create table wakeq.chores (
    name      text not null primary key,
    next_at   timestamptz not null default now(),
    passes    bigint not null default 0,
    -- Every promise before this moment has been kept: where the probe starts to read.
    low_water timestamptz not null default '-infinity'
);

insert into wakeq.chores (name) values ('minute'), ('expire');
