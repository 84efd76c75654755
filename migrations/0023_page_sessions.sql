-- Who is signed in to the pages: a row for each session of a person in a browser.
--
-- Whose a session is, and until when, is in its cookie, which is signed. Its row says that it has
-- not ended before: people sign out, end a session of theirs in another browser, or go away. It has
-- no canvas, since a session may do on any of them what its key may.

create table wakeq.page_sessions (
    -- As the cookie has it.
    id        uuid not null primary key,
    -- The public part of the key, or the address of the person.
    owner     text not null check (owner ~ '^(key:[0-9a-f]{12}|account:.{3,190})$'),
    opened_at timestamptz not null default now(),
    -- When a page was opened last, to the minute.
    seen_at   timestamptz not null default now(),
    ends_at   timestamptz not null,
    -- What its owner knows it by.
    address   text not null check (length(address) between 1 and 50),
    browser   text not null check (length(browser) <= 200),
    constraint page_sessions_length check (ends_at > opened_at and ends_at <= opened_at + interval '1 day')
);

create index page_sessions_owner on wakeq.page_sessions (owner, seen_at);
-- For those that nobody uses, which the next ones remove.
create index page_sessions_age on wakeq.page_sessions (seen_at);
