-- A large canvas and a small one, for `cargo xtask field page`. Only what the pages read matters:
-- nothing here is ever claimed, so promises lie a day ahead.

-- A million events of 5,000 handlers. The first has 100,000, the next 50 have 8,000 each, and the
-- others about a hundred.
insert into wakeq.events_v2
    (id, canvas_id, module, name, modifier, value, retries, delay_until, enqueued_at, notify_at, claims, last_error,
     options)
select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER',
       'handler-' || lpad(
           case when n % 10 = 0 then 1 when n % 10 < 5 then 2 + n / 10 % 50
                else 1 + n / 10 % 1000 * 5 + n % 5 end::text, 4, '0'),
       '_', '{"order":' || n || ',"customer":{"id":' || n % 20000 || '},"total":"12.50"}',
       case when n % 50 = 7 then 1 + n % 3 else 0 end,
       case when n % 4 = 3 then now() + n * interval '100 ms' else now() - n * interval '10 ms' end,
       now() - n * interval '12 ms', now() + interval '1 day', case when n % 50 = 7 then 4 else 0 end,
       case when n % 50 = 7 then 'timeout after ' || n % 900 || ' ms' end,
       case when n % 10 = 3
            then jsonb_build_object('tags', jsonb_build_array('customer:' || n % 20000, 'shop:' || n % 7)) end
  from generate_series(1, 1000000) as n;

-- Objects, each with five events behind each other, and some halted lanes.
insert into wakeq.events_v2
    (id, canvas_id, module, name, modifier, value, delay_until, enqueued_at, notify_at, object, seq, prev)
select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'handler-0300', '_', '{}',
       now() - interval '1 min', now() - interval '1 min', now() + interval '1 day', 'order:' || n / 5, 10 + n,
       case when n % 5 = 0 then 0 else 9 + n end
  from generate_series(0, 9999) as n;
insert into wakeq.objects (canvas_id, object, last_seq)
select canvas_id, object, max(seq) from wakeq.events_v2 where object is not null group by 1, 2;
insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
select e.canvas_id, e.object, 'WORKER', 'handler-0300', gen_random_uuid(), 5, 0
  from wakeq.events_v2 e where e.object is not null and e.prev = 0 limit 100;

-- Rules: paused and blocked handlers, whose events are parked, and a paused canvas.
insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, reason, created_by)
select case when n % 3 = 0 then 'block' else 'pause' end::wakeq.scheduling_rule_type,
       '00000000-0000-0000-0000-000000000000'::uuid, 'WORKER', 'handler-' || lpad((100 + n)::text, 4, '0'), 'a release',
       'ada'
  from generate_series(1, 30) as n
 union all
select 'pause', '77777777-7777-4777-8777-777777777777', 'CANVAS', '_', 'moved', 'ada';
update wakeq.events_v2 e set notify_at = null
  from wakeq.scheduling_rules r
 where e.canvas_id = r.canvas_id and e.module = r.event_space and e.name = r.handler_name;

-- Targets, handlers that nobody knows, handlers that are pulled, and crons.
insert into wakeq.http_targets
    (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms, secret, created_by,
     updated_by)
select '00000000-0000-0000-0000-000000000000', 'WORKER', 'handler-' || lpad(n::text, 4, '0'), '_',
       'http://127.0.0.1:9/' || n, 3, 1000, 2, 60000, 10000, sha256(n::text::bytea), 'ada', 'ada'
  from generate_series(1, 500) as n;
insert into wakeq.unknown_handlers (canvas_id, module, name, modifier)
select '00000000-0000-0000-0000-000000000000', 'WORKER', 'handler-' || lpad(n::text, 4, '0'), '_'
  from generate_series(701, 720) as n;
insert into wakeq.pulled_handlers
    (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by)
select '00000000-0000-0000-0000-000000000000', 'WORKER', 'handler-' || n, 3, 1000, 2, 60000, false, 'ada', 'ada'
  from generate_series(2001, 2005) as n;
insert into wakeq.cron_records
    (canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by, created_at, changed_at)
select '00000000-0000-0000-0000-000000000000', 'nightly-' || n, '0 3 * * *', 'UTC', '_', '{}', 'once',
       date_trunc('day', now()) + interval '1 day 3 hours', 'ada', now(), now()
  from generate_series(1, 20) as n;

-- Limits: of keys, with holders, and with events that wait for one of them.
insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
select '00000000-0000-0000-0000-000000000000', 'customer-' || n, 5, 'ada', 'ada' from generate_series(1, 20) as n;
insert into wakeq.limit_states (canvas_id, name)
select '00000000-0000-0000-0000-000000000000', 'customer-' || n || ':' || k
  from generate_series(1, 20) as n, generate_series(1, 50) as k;
insert into wakeq.limit_waits (event_id, canvas_id, name, due)
select e.id, e.canvas_id, 'customer-1:' || row_number() over () % 50, e.delay_until
  from wakeq.events_v2 e
 where e.canvas_id = '00000000-0000-0000-0000-000000000000' and e.module = 'WORKER' and e.name = 'handler-0002'
   and e.delay_until > '-infinity' and e.delay_until < now() limit 2000;
update wakeq.events_v2 e set starts_at = w.since from wakeq.limit_waits w where w.event_id = e.id;

-- A hundred thousand dead events, of 40 handlers with five errors each, and what is known of some.
insert into wakeq.dead_events
    (canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error, cause, died_at,
     options)
select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'WORKER',
       'handler-' || lpad((1 + n % 40)::text, 4, '0'), '_', '{"order":' || n || '}', 3,
       now() - interval '15 days', 4, 0,
       (array['card of customer ' || n || ' declined', 'timeout after ' || n % 900 || ' ms',
              'HTTP 503 from "https://shop.example/' || n || '"', 'no such order: ' || gen_random_uuid(),
              'connection reset by peer'])[1 + n / 40 % 5],
       'retries', now() - n * interval '10 s',
       case when n % 10 = 3 then jsonb_build_object('tags', jsonb_build_array('customer:' || n % 2000)) end
  from generate_series(1, 100000) as n;
insert into wakeq.known_errors (canvas_id, error_group, note, known_by)
select distinct on (error_group) canvas_id, error_group, 'the bank knows', 'ada' from wakeq.dead_events limit 20;
insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, worker, started_at, took_us, error)
select d.canvas_id, d.id, k, k, case when k = 4 then 'dead' else 'retried' end, 'worker-1', d.died_at, 12000,
       d.last_error
  from (select * from wakeq.dead_events limit 20000) as d, generate_series(1, 4) as k;

-- A million events that are kept after their end, for up to four weeks.
insert into wakeq.ended_events
    (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error, enqueued_at, due_at, ended_at,
     started_at, took_us, worker, claims, retries, losses, options)
select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), now() + (1 + n % 27) * interval '1 day', 'WORKER',
       'handler-' || lpad((1 + n % 5000)::text, 4, '0'), '_', '{"order":' || n || '}', '"ok"',
       case when n % 100 = 0 then 'failed' when n % 1000 = 1 then 'cancelled' else 'completed' end,
       case when n % 100 = 0 then 'declined' end, ended - interval '2 s', ended - interval '1 s', ended,
       ended - interval '0.01 s', 10000, 'worker-1', 1, 0, 0,
       case when n % 10 = 3 then jsonb_build_object('tags', jsonb_build_array('shop:' || n % 2000)) end
  from (select n, now() - n * interval '1 s' as ended from generate_series(1, 1000000) as n) as made;

-- Statistics of the canvas and of fifty handlers.
insert into wakeq.minute_statistics
select date_trunc('minute', now()) - m * interval '1 min', '00000000-0000-0000-0000-000000000000',
       case when h = 0 then '' else 'WORKER' end, case when h = 0 then '' else 'handler-' || lpad(h::text, 4, '0') end,
       100, 90, 5, 4, 1, 90000, 180000, '{1,2,3,4,5,6,7}', '{1,2,3,4,5,6,7}'
  from generate_series(0, 1439) as m, generate_series(0, 50) as h;
insert into wakeq.hour_statistics
select date_trunc('hour', now()) - m * interval '1 hour', '00000000-0000-0000-0000-000000000000',
       case when h = 0 then '' else 'WORKER' end, case when h = 0 then '' else 'handler-' || lpad(h::text, 4, '0') end,
       6000, 5400, 300, 240, 60, 5400000, 10800000, '{1,2,3,4,5,6,7}', '{1,2,3,4,5,6,7}'
  from generate_series(25, 335) as m, generate_series(0, 50) as h;

-- Batches, operations that have ended, workers that sleep, and the record.
insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value, completed)
select '00000000-0000-0000-0000-000000000000', 'import-' || n, gen_random_uuid(), 'WORKER', 'handler-0001', '_', '{}', n
  from generate_series(1, 200) as n;
insert into wakeq.operations
    (canvas_id, kind, filter, cut_off, state, looked_at, matched, changed, author, job, ended_at)
select '00000000-0000-0000-0000-000000000000', 'redrive', '{"name":"handler-0001"}', now(), 'done', 500, 400, 400,
       'ada', n, now()
  from generate_series(1, 200) as n;
insert into wakeq.workers
    (name, instance, host, pid, release, may_sleep, capacity, handler_count, handlers, has_targets)
select 'worker-' || n, gen_random_uuid(), 'host-' || n, n, '1', true, 64, 1, '{WORKER/handler-0001}', true
  from generate_series(1, 20) as n;
insert into wakeq.audit_log (at, canvas_id, actor, action, outcome, detail)
select now() - n * interval '20 s', '00000000-0000-0000-0000-000000000000', 'ada', 'pause', 'done', 'a release'
  from generate_series(1, 100000) as n;

-- The small canvas, whose id a condition must not miss.
insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
select gen_random_uuid(), '77777777-7777-4777-8777-777777777777', 'WORKER', 'small-' || n % 5, '_', '1',
       now() - interval '1 min', null
  from generate_series(1, 200) as n;
insert into wakeq.dead_events
    (canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error, cause)
select '77777777-7777-4777-8777-777777777777', gen_random_uuid(), 'WORKER', 'small-1', '_', '1', 3, now(), 4, 0,
       'declined', 'retries'
  from generate_series(1, 10) as n;
