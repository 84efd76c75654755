//! What functions of the database decide about the victim's limits and pulled handlers, beside an
//! attacker that has limits of the same names in another state.

use super::questions::{PAUSED, Question};

/// Limits of which the attacker's are full, and a wait of the victim. Of the attacker's events one
/// runs and two wait; two were told to come, a moment and ten minutes ago; and one is to come in
/// ten minutes.
const LIMITED: &str = "
    insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
    select canvas, name, places, 'tests', 'tests'
      from (values ('ATTACKER'::uuid, 'canvas', 1), ('ATTACKER', 'handler:audit/note', 1), ('ATTACKER', 'crew', 1),
                   ('ATTACKER', 'team', 1), ('VICTIM', 'crew', 2)) as limits (canvas, name, places);
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims, starts_at, options)
    select id, canvas, 'audit', 'note', '_', '1', now() - interval '1 hour', case when id = '<a1>' then now() end,
           case when id = '<a1>' then 1 else 0 end, now(), '{\"limits\": [\"crew:1\"]}'
      from (values ('<a1>'::uuid, 'ATTACKER'::uuid), ('<a2>', 'ATTACKER'), ('<a3>', 'ATTACKER'), ('<a4>', 'ATTACKER'),
                   ('<a5>', 'ATTACKER'), ('<a6>', 'ATTACKER'), ('<b1>', 'VICTIM')) as events (id, canvas);
    insert into wakeq.limit_states (canvas_id, name, holders, rate) values
    ('ATTACKER', 'crew', '{}', null), ('ATTACKER', 'crew:1', '{<a1>}', null), ('VICTIM', 'crew:1', '{}', 'another');
    insert into wakeq.limit_waits (event_id, canvas_id, name, due, woken_at) values
    ('<a2>', 'ATTACKER', 'crew:1', now() - interval '3 hours', null),
    ('<a3>', 'ATTACKER', 'crew:1', now() - interval '2 hours', null),
    ('<a4>', 'ATTACKER', 'crew:1', now() - interval '2 hours', clock_timestamp()),
    ('<a5>', 'ATTACKER', 'crew:1', now() - interval '2 hours', now() - interval '10 minutes'),
    ('<a6>', 'ATTACKER', 'crew:1', now() - interval '2 hours', now() + interval '10 minutes'),
    ('<b1>', 'VICTIM', 'crew:1', now() - interval '1 hour', null);";

/// Nothing of the victim's waits.
const NOBODY_WAITS: &str = "delete from wakeq.limit_waits where canvas_id = 'VICTIM';";

/// A new event of each tenant.
const NEWCOMERS: &str = "
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options) values
    ('<a8>', 'ATTACKER', 'audit', 'note', '_', '1', '{\"limits\": [\"crew:1\"]}'),
    ('<b8>', 'VICTIM', 'audit', 'note', '_', '1', '{\"limits\": [\"crew:1\"]}');";

/// States that have not been used for an hour, of which the victim's first says nothing more; those
/// of the attacker are in use.
const UNUSED: &str = "
    insert into wakeq.limit_states (canvas_id, name, holders, used_at) values
    ('ATTACKER', 'crew:8', '{}', now() - interval '1 minute'), ('ATTACKER', 'crew:9', '{}', now() - interval '1 minute'),
    ('VICTIM', 'crew:8', '{}', now() - interval '2 hours'), ('VICTIM', 'crew:9', '{<a1>}', now() - interval '2 hours');";

/// A pulled handler of the attacker, and events of both on an object and on none.
const PULLED: &str = "
    insert into wakeq.pulled_handlers (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by)
    values ('ATTACKER', 'audit', 'note', 1, 1, 1, 1, false, 'tests', 'tests');
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev) values
    ('<a1>', 'ATTACKER', 'audit', 'note', '_', '1', 'lane', 1, 0), ('<a2>', 'ATTACKER', 'audit', 'note', '_', '1', null, null, null),
    ('<b1>', 'VICTIM', 'audit', 'note', '_', '1', 'lane', 2, 0), ('<b2>', 'VICTIM', 'audit', 'note', '_', '1', null, null, null);";

const HALTED: &str = "
    insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
    values ('ATTACKER', 'lane', 'audit', 'note', gen_random_uuid(), 1, 0);";

pub(super) const QUESTIONS: [Question; 35] = [
    (&[LIMITED], "", "(wakeq.limit_on('VICTIM', 'handler:audit/note')).name is null"),
    (&[LIMITED], "", "(wakeq.limit_on('VICTIM', 'team:1')).name is null"),
    (&[LIMITED], "", "not wakeq.is_limited('VICTIM', 'audit', 'note', null)"),
    (&[LIMITED], "", "not exists (select from wakeq.limits_of('VICTIM', 'audit', 'note', null))"),
    (&[LIMITED, NOBODY_WAITS], "", "wakeq.count_waits('VICTIM', 'crew:1', 10) = 0"),
    (&[LIMITED], "", "(select running = 0 from wakeq.use_of('VICTIM', 'crew:1', '1 minute'))"),
    (&[LIMITED], "", "array(select counted_canvas from wakeq.limit_uses('VICTIM', 'crew', null, 10, '1 minute')) = '{VICTIM}'"),
    (&[LIMITED], "", "not exists (select from wakeq.wait_of('ATTACKER', '<b1>', '1 minute'))"),
    (
        &[LIMITED, "update wakeq.limits set rate_count = 1, rate_period = '1 hour', rate_burst = 1 where canvas_id = 'VICTIM'"],
        "",
        "(select next_start < now() + interval '1 minute' from wakeq.wait_of('VICTIM', '<b1>', '1 minute'))",
    ),
    (&[LIMITED], "", "array(select wakeq.events_at_limit('VICTIM', 'crew:1', '00000000-0000-0000-0000-000000000000', 10)) = '{<b1>}'"),
    (
        &[LIMITED, "update wakeq.limit_waits set canvas_id = 'VICTIM'"],
        "",
        "array(select wakeq.events_at_limit('VICTIM', 'crew:1', '00000000-0000-0000-0000-000000000000', 10)) = '{<b1>}'",
    ),
    (&[LIMITED], "", "(wakeq.lock_limit('VICTIM', 'crew:1')).canvas_id = 'VICTIM'"),
    (&[LIMITED, NOBODY_WAITS], "", "not (wakeq.lock_use('VICTIM', 'crew:1')).is_waited"),
    (&[LIMITED], "", "(wakeq.lock_use('VICTIM', 'crew:1')).woken = 0"),
    (
        &[LIMITED],
        "select wakeq.write_use(wakeq.lock_use('VICTIM', 'crew:1'))",
        "(select holders = '{<a1>}' from wakeq.limit_states where canvas_id = 'ATTACKER' and name = 'crew:1')",
    ),
    (&[LIMITED], "", "wakeq.stand_in_line('{<b1>}', '1 minute') = '{}'"),
    (&[LIMITED], "", "wakeq.room_for('VICTIM', 'crew:1', '1 minute') = 2"),
    (
        &[LIMITED, UNUSED],
        "select wakeq.expire_limit_states('1 minute')",
        "(select count(*) = 2 and bool_and(used_at = now() - interval '1 minute')
            from wakeq.limit_states where canvas_id = 'ATTACKER' and name in ('crew:8', 'crew:9'))",
    ),
    (
        &[LIMITED, NOBODY_WAITS, NEWCOMERS],
        "",
        "(select array_agg(verdict) = '{claimed}'
            from wakeq.claim_limited('{<a8>, <b8>}', '{ATTACKER, VICTIM}', '{audit/note/_}', '{}', '1 minute', 3, 1000,
                                     '10 minutes', '30 s', 'tests')
           where canvas_id = 'VICTIM')",
    ),
    (
        &[LIMITED, NEWCOMERS],
        "",
        "wakeq.claimable('{<b8>}', '{ATTACKER}', '{audit/note/_}', '{}', '1 minute', 3, 1000) = '{}'",
    ),
    (
        &[LIMITED, NOBODY_WAITS],
        "",
        "wakeq.is_next(jsonb_populate_record(null::wakeq.limited_ask, jsonb_build_object('id', '<b1>', 'due', now())), 'VICTIM', 'crew:1')",
    ),
    (
        &[LIMITED],
        "",
        "array(select canvas_id from wakeq.wake_waiting('{VICTIM}', '{crew:1}', '1 minute', '30 s')) = '{VICTIM}'",
    ),
    (&[LIMITED], "", "(select room = 2 from wakeq.room_of(wakeq.lock_use('VICTIM', 'crew:1'), '1 minute', '{}'))"),
    (
        &[LIMITED],
        "select (wakeq.begin_line(wakeq.lock_use('VICTIM', 'crew:1'))).is_waited",
        "(select count(*) = 2 from wakeq.limit_waits where canvas_id = 'ATTACKER' and woken_at is null)",
    ),
    (
        &[LIMITED, "update wakeq.limit_states set line_at = 'infinity'"],
        "",
        "(select wakeq.line_end(s, '1 minute') = '-infinity' from wakeq.limit_states s where canvas_id = 'VICTIM')",
    ),
    (&[LIMITED], "", "not wakeq.is_told_anew('VICTIM', 'crew:1')"),
    (
        &[
            LIMITED,
            "update wakeq.limit_waits set woken_at = now() + interval '1 minute'",
            "update wakeq.limit_states set rate = case canvas_id when 'ATTACKER' then 'another' end",
        ],
        "",
        "not wakeq.is_told_anew('VICTIM', 'crew:1')",
    ),
    (
        &[LIMITED, NOBODY_WAITS],
        "select wakeq.cancel_waiting(wakeq.lock_use('VICTIM', 'crew:1'))",
        "not exists (select from wakeq.events_v2 where canvas_id = 'ATTACKER' and cancelled_by is not null)",
    ),
    (
        &[LIMITED, NOBODY_WAITS, "update wakeq.limit_waits set woken_at = now() + interval '1 minute'"],
        "select wakeq.cancel_waiting(wakeq.lock_use('VICTIM', 'crew:1'))",
        "not exists (select from wakeq.events_v2 where canvas_id = 'ATTACKER' and cancelled_by is not null)",
    ),
    (&[PULLED], "", "not wakeq.is_pulled_handler('VICTIM', 'audit', 'note')"),
    (&[PAUSED], "", "not wakeq.is_held_handler('VICTIM', 'audit', 'note')"),
    (
        &[PULLED],
        "",
        "(select ids @> '{<b1>, <b2>}' and ids <@ '{<b1>, <b2>}'
            from wakeq.look_at('VICTIM', 'audit', 'note', '-infinity', '00000000-0000-0000-0000-000000000000'))",
    ),
    (&[PULLED], "", "array(select wakeq.leasable_of('{<b1>}', '1 minute')) = '{<b1>}'"),
    (
        &[PULLED, HALTED, "delete from wakeq.events_v2 where id = '<a1>'"],
        "",
        "array(select wakeq.leasable_of('{<b1>}', '1 minute')) = '{<b1>}'",
    ),
    (
        &[PULLED],
        "",
        "not exists (select from wakeq.lease_events('VICTIM', 'audit', 'note', 10, '1 minute', '1 minute', 100000))",
    ),
];
