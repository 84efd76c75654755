-- The durations that all processes of a deployment share, in microseconds. The first process writes them.

create table wakeq.settings (
    name     text not null primary key,
    value_us bigint not null check (value_us >= 0),
    set_at   timestamptz not null default now()
);
