//! Turns with a large backlog: what may not run does not hold up the rest, and is not read again
//! and again.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::Table;
use super::cost::{array, buffers, plan};
use super::queues::{
    EMAILS, canvas, canvases, email, emails, emit, emit_emails, events, queue, register, take,
};
use crate::event::{Due, EventId, NewEvent, Turn};
use crate::store::{FacetSettings, InsertOutcome, TurnRequest};

/// Many copies wait for others of their object, in front of all others of their canvas: nothing
/// else waits for them to be scanned.
#[tokio::test]
async fn a_hot_object_delays_no_other_canvas() {
    let table = emails(FacetSettings::default()).await;
    let hot = |_| NewEvent { object: Some("mail:1".parse().unwrap()), ..email(canvas(1)) };
    let linked: Vec<NewEvent> = (0..900).map(hot).collect();
    let inserted = table.store.insert_all(&linked, &[false; 900]).await.unwrap();
    let copies: Vec<EventId> = inserted.iter().flat_map(InsertOutcome::copies).copied().collect();
    table.store.announce(&copies).await.unwrap();
    emit_emails(&table.store, canvas(2), 1).await;
    emit_emails(&table.store, canvas(1), 1).await;
    assert_eq!(canvases(&take(&table.store, 1).await), [1], "the first of the object");
    assert_eq!(canvases(&take(&table.store, 1).await), [2]);
    let mut calls = 0;
    while canvases(&take(&table.store, 1).await) != [1] {
        calls += 1;
        assert!(calls < 3, "the event without an object is not found");
    }
}

/// A running copy is not held by itself: its notification, when it comes again, has to wait for the
/// lease.
#[tokio::test]
async fn a_copy_that_runs_is_locked_and_not_held() {
    let table = emails(FacetSettings { weight: None, in_flight_max: Some(1) }).await;
    let copies = emit_emails(&table.store, canvas(1), 2).await;
    let later = NewEvent { due: Due::After(Duration::from_secs(300)), ..email(canvas(1)) };
    let delayed = emit(&table.store, vec![later]).await;
    assert_eq!(take(&table.store, 1).await.len(), 1);
    let loaded = table.store.load(&[copies[0], copies[1], delayed[0]]).await.unwrap();
    let turns: Vec<Turn> = loaded.into_iter().map(|event| event.unwrap().schedule.turn).collect();
    assert_eq!(turns, [Turn::First, Turn::Held, Turn::First]);
}

/// A copy whose queue is gone was emitted by a transaction that was still open then, or is
/// redriven: it runs all the same.
#[tokio::test]
async fn a_copy_outlives_its_queue() {
    let table = emails(FacetSettings::default()).await;
    let copies = emit_emails(&table.store, canvas(1), 1).await;
    table.run("delete from wakeq.queues").await;
    let turn = TurnRequest { queue: queue(EMAILS), asks: copies[0] };
    assert_eq!(events(table.store.take_turns(&[turn], 2, i32::MAX).await).len(), 1);
}

/// Two queues in one batch: each is answered separately.
#[tokio::test]
async fn a_blocked_queue_fails_no_other_queue() {
    let Some(table) = emails(FacetSettings::default()).await.for_sessions("two sessions at once") else {
        return;
    };
    register(&table.store, "all", &["."], FacetSettings::default()).await;
    emit_emails(&table.store, canvas(1), 1).await;
    let mut holder = table.pool.begin().await.unwrap();
    sqlx::query("select wakeq.lock_queue('all')").execute(&mut *holder).await.unwrap();
    let turn = |name| TurnRequest { queue: queue(name), asks: EventId::new() };
    let taken = table.store.take_turns(&[turn("all"), turn(EMAILS)], 2, i32::MAX).await;
    assert!(taken[0].as_ref().is_err_and(crate::store::StoreError::is_contention), "{taken:?}");
    assert!(taken[1].as_ref().is_ok_and(Option::is_some), "{taken:?}");
}

/// Among thousands of facets, and behind thousands of copies that are not due, a turn and an
/// announcement read only what they are about.
#[tokio::test]
async fn a_turn_reads_only_the_copies_it_takes() {
    let table = emails(FacetSettings::default()).await;
    let delayed = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin, delay_until)
         select gen_random_uuid(), ('00000000-0000-0000-0000-' || lpad(to_hex(n % 2000 + 2), 12, '0'))::uuid, 'email_event', 'opened',
                '_', '1', 'emails', gen_random_uuid(), now() + interval '1 h'
           from generate_series(1, 20000) n";
    table.run(delayed).await;
    table.run("insert into wakeq.facets (queue, canvas_id, position)
               select 'emails', canvas_id, nextval('wakeq.facet_seq') from wakeq.events_v2 group by canvas_id").await;
    table.run("vacuum analyze wakeq.events_v2").await;
    table.run("analyze wakeq.facets").await;
    let copies = emit_emails(&table.store, canvas(1), 3).await;
    let ids: Vec<Uuid> = copies.iter().map(|id| id.0).collect();
    let mut connection = table.pool.acquire().await.unwrap();
    let mut pages = async |sql: &'static str| {
        // The first time, a session also reads the catalog.
        let mut hits = [0, 0];
        for hit in &mut hits {
            let lines: Vec<String> =
                sqlx::query_scalar(sql).bind(&ids).fetch_all(&mut *connection).await.unwrap();
            let buffers = lines.iter().find(|line| line.contains("shared hit=")).unwrap();
            let number = buffers.split("hit=").nth(1).and_then(|rest| rest.split(' ').next());
            *hit = number.unwrap().parse::<u64>().unwrap();
        }
        hits[1]
    };
    let announced = pages("explain (analyze, buffers, timing off) select wakeq.announce('emails', $1)").await;
    assert!(announced < 200, "{announced} pages for an announcement");
    let taken = pages("explain (analyze, buffers, timing off) select * from wakeq.take_turns('emails', $1, 1, true, '1 min', 2)").await;
    assert!(taken < 600, "{taken} pages for a turn");
    println!("pages among 2,000 facets and 20,000 copies: {announced} to announce three, {taken} for a turn");
}

/// A copy whose value is too large for a turn holds up nothing, of its own canvas or another; it is
/// taken alone.
#[tokio::test]
async fn large_copies_are_passed_over_and_taken_alone() {
    let table = emails(FacetSettings::default()).await;
    let huge = NewEvent { value: format!("\"{}\"", "x".repeat(1000)), ..email(canvas(1)) };
    let copies = emit(&table.store, vec![huge, email(canvas(1)), email(canvas(2))]).await;
    let turn = TurnRequest { queue: queue(EMAILS), asks: EventId::new() };
    let taken = events(table.store.take_turns(&vec![turn; 5], 2, 100).await);
    assert_eq!(canvases(&taken), [2, 1], "one was looked at before the second");
    let large = copies[0];
    assert!(taken.iter().all(|event| event.claim.id != large));
    let loaded = table.store.load(&[large]).await.unwrap().pop().flatten().unwrap();
    assert_eq!(loaded.value_bytes, 1002);
    let alone = async |value_max| table.store.take_alone(&queue(EMAILS), large, 2, value_max).await.unwrap();
    assert!(alone(1001).await.is_none());
    assert_eq!(alone(1002).await.unwrap().value.len(), 1002);
}

/// The pages that a statement about queues reads the second time, with the changes of the first
/// undone: the first time also reads the catalog.
async fn pages(table: &Table, sql: &'static str) -> u64 {
    let mut connection = table.pool.acquire().await.unwrap();
    pages_once(&mut connection, sql).await;
    pages_once(&mut connection, sql).await
}

async fn pages_once(connection: &mut PgConnection, sql: &'static str) -> u64 {
    let mut transaction = connection.begin().await.unwrap();
    let lines: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut *transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    let buffers = lines.iter().find(|line| line.contains("Buffers: shared")).unwrap();
    let counts = buffers
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("hit=").or_else(|| word.strip_prefix("read=")));
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// A session that took turns while the queue was nearly empty does not read all of it once much
/// waits there.
#[tokio::test]
async fn a_plan_for_an_empty_queue_is_not_used_for_a_full_one() {
    let table = emails(FacetSettings::default()).await;
    let fill = async |count: i32| {
        let copies = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin)
             select gen_random_uuid(), ('00000000-0000-0000-0000-' || lpad(to_hex(n % 200), 12, '0'))::uuid, 'email_event',
                    'opened', '_', '1', 'emails', gen_random_uuid() from generate_series(1, $1) n";
        sqlx::query(copies).bind(count).execute(&table.pool).await.unwrap();
        table.run("insert into wakeq.facets (queue, canvas_id, position)
                   select 'emails', canvas_id, nextval('wakeq.facet_seq') from wakeq.events_v2 group by canvas_id
                       on conflict do nothing").await;
    };
    fill(3).await;
    table.run("vacuum analyze wakeq.events_v2").await;
    table.run("vacuum analyze wakeq.facets").await;
    let mut connection = table.pool.acquire().await.unwrap();
    for setting in ["set enable_seqscan = off", "set enable_bitmapscan = off"] {
        sqlx::query(setting).execute(&mut *connection).await.unwrap();
    }
    let turns = "explain (analyze, buffers, timing off)
                 select * from wakeq.take_turns('emails', '{}', 64, false, '1 min', 2)";
    for _ in 0..8 {
        pages_once(&mut connection, turns).await;
    }
    fill(20_000).await;
    let read = pages_once(&mut connection, turns).await;
    println!("pages for 64 turns of 20,000 copies, with plans for three: {read}");
    assert!(read < 10_000, "{read}");
}

/// Under a snapshot that keeps completed copies alive, turns read the dead rows of a lane once per
/// scan, not for each of its copies; so does a search for room.
#[tokio::test]
async fn turns_read_the_dead_of_a_lane_once() {
    let Some(table) =
        emails(FacetSettings { weight: None, in_flight_max: Some(1000) }).await.beside_transactions()
    else {
        return;
    };
    let linked = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin, object, seq, prev, delay_until)
         select gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 'email_event', 'opened', '_', '1', 'emails',
                gen_random_uuid(), 'mail:1', n, n - 1, now() - interval '1 h' + n * interval '1 ms'
           from generate_series(1, 20200) n";
    table.run(linked).await;
    // Their facet was scanned up to the last one that was completed.
    table.run("insert into wakeq.facets (queue, canvas_id, position, was_full, head_at, head_id)
               select 'emails', canvas_id, nextval('wakeq.facet_seq'), true, delay_until, id from wakeq.events_v2 where seq = 20000").await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let mut snapshot = table.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select from wakeq.chores").execute(&mut *snapshot).await.unwrap();
    table.run("delete from wakeq.events_v2 where seq <= 20000").await;
    let taken = pages(
        &table,
        "explain (analyze, buffers, timing off)
                               select * from wakeq.take_turns('emails', '{}', 100, false, '1 min', 2)",
    )
    .await;
    let room = pages(&table, "explain (analyze, buffers, timing off)
                              select wakeq.room_in_facet('emails', '00000000-0000-0000-0000-000000000001', '1 min', true)").await;
    println!("pages beside 20,000 dead of a lane: {taken} for 100 turns, {room} to look for room");
    assert!(taken < 4000 && room < 2000, "{taken}, {room}");
    snapshot.rollback().await.unwrap();
    assert_eq!(take(&table.store, 100).await.len(), 1, "the first of the object");
}

/// The load of many copies counts the running ones of their facet once, and not for each of them.
#[tokio::test]
async fn a_load_counts_what_runs_of_a_facet_once() {
    let table = Table::of_one_connection().await;
    let facets = FacetSettings { weight: None, in_flight_max: Some(1000) };
    register(&table.store, EMAILS, &[".*:email_event:.*"], facets).await;
    let copies = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, queue, origin, locked_at, claims)
         select gen_random_uuid(), ('00000000-0000-0000-0000-00000000000' || c)::uuid, 'email_event', 'opened', '_', '1', 'emails',
                gen_random_uuid(), case when n <= 1000 then now() end, 1
           from generate_series(1, 1250) n, generate_series(1, 2) c";
    table.run(copies).await;
    table.run("insert into wakeq.facets (queue, canvas_id, running)
               select queue, canvas_id, array_agg(id) from wakeq.events_v2 where locked_at is not null group by 1, 2").await;
    table.run("vacuum analyze wakeq.events_v2").await;
    let waiting = "select id from wakeq.events_v2 where locked_at is null";
    let waiting: Vec<Uuid> = sqlx::query_scalar(waiting).fetch_all(&table.pool).await.unwrap();
    let waiting: Vec<EventId> = waiting.into_iter().map(EventId).collect();
    let loaded = table.store.load(&waiting).await.unwrap();
    assert!(loaded.iter().flatten().all(|event| event.schedule.turn == Turn::Held));
    let arguments = format!("{}, '1 min'", array(&waiting));
    let plan = plan(&table.store, "from wakeq.events_v2 e where e.id = any", &arguments).await;
    let pages = buffers(&plan, "");
    println!("pages to load 500 copies of two facets with 1,000 in flight each: {pages}");
    assert!(pages < 15_000, "{plan}");
}

/// 300 rotations at random, of up to 40 facets: each facet gets its share until no turns are left;
/// a share respects the weight and the limit; and facets without a limit have the same number of
/// rounds.
#[tokio::test]
async fn turns_are_shared_in_order_by_weights_and_limits() {
    let table = Table::new().await;
    let kept = "select count(*)
          from (select setseed(0.5)) as seeded, generate_series(1, 300) as n
         cross join lateral (
               select n as still, array_agg(row(gen_random_uuid(), place, (random() * 3)::integer, (random() * 4)::integer,
                          case when random() < 0.5 then (random() * 9)::integer end, null, null, '{}',
                          array_fill(gen_random_uuid(), array[(random() * 3)::integer]), '{}', false, null, null)
                          ::wakeq.turn_facet order by random()) as facets
                 from generate_series(1, 1 + n % 40) as place) as rotation
         cross join lateral (
               select bool_and(f.slots = least(f.share, still - f.before)) as in_order,
                      bool_and(f.share = 0 or f.share > 0 and (f.share + cardinality(f.running) > f.in_flight_max) is not true)
                          as in_limits,
                      count(distinct f.share / nullif(f.weight, 0)) filter (where f.used = 0 and f.in_flight_max is null) as rounds,
                      bool_and(f.share = 0) filter (where f.weight = 0) as pauses
                 from (select u.*, sum(u.slots) over (order by u.position) - u.slots as before
                         from unnest(wakeq.share_turns(facets, still, false)) as u) as f) as found
         where found.in_order and found.in_limits and found.rounds <= 1 and found.pauses is not false";
    assert_eq!(table.number(kept).await, 300);
}

/// 300 passes at random, of up to 9 facets with up to 13 copies each: a facet has as many of its
/// first free copies taken as it has slots, and passes all copies before the last of them.
#[tokio::test]
async fn the_first_free_copies_of_each_facet_are_chosen() {
    let table = Table::new().await;
    let kept = "select count(*)
          from (select setseed(0.5)) as seeded, generate_series(1, 300) as n
         cross join lateral (
               select array_agg(row(f.canvas, f.number, f.slots, true, gen_random_uuid(), now() - random() * interval '1 h',
                          random() < 0.3, (array['free', 'apart', 'bound'])[1 + (random() * 2)::integer], null, null, null)
                          ::wakeq.turn_copy) as copies
                 from (select gen_random_uuid() as canvas, number, (random() * 4)::integer as slots
                         from generate_series(1, 1 + n % 9) as number) as f, generate_series(1, 1 + n % 13)) as pass
         cross join lateral (
               select bool_and(c.is_taken = (c.state = 'free' and c.free <= c.slots)) as in_order,
                      bool_and(c.is_done = (c.free < c.slots or c.is_taken)) as all_before,
                      count(*) as copies
                 from (select u.*, count(*) filter (where u.state = 'free') over (
                                  partition by u.canvas_id order by not u.is_recalled, u.delay_until) as free
                         from unnest(wakeq.choose_copies(copies)) as u) as c) as found
         where found.in_order and found.all_before and found.copies = cardinality(pass.copies)";
    assert_eq!(table.number(kept).await, 300);
}
