//! Order, while emitters and workers are processes, and die.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use wakeq::machine::{Consumption, Link, consume};
use wakeq::notify::Notification;
use wakeq::order::Lane;
use wakeq::{Actor, CanvasId, Event, EventId};

use crate::support::child_processes::{Durations, Process, Role, WORK, WORK_OR_HALT, Work};
use crate::support::crash_scene::{CrashScene, figure, list, size};
use crate::support::{Statements, TIMEOUT, scope};

const ENDED: &str =
    "select count(distinct event) from runs where object like 'work:%' and ended_at is not null";
/// Events that started before their predecessor on the object had ended, or that do not link to it.
const OUT_OF_ORDER: &str = "with events as (
        select object, link, prev, min(claimed_at) as started_at, max(ended_at) as ended_at
          from runs where object like 'work:%' group by object, link, prev
    ), pairs as (
        select started_at, prev, lag(ended_at) over (partition by object order by link) as ended_before,
               lag(link, 1, 0::bigint) over (partition by object order by link) as link_before
          from events)
    select count(*) from pairs where ended_before > started_at or prev <> link_before";
/// Events whose runs did not all get the same link.
const CHANGED: &str = "select count(*) from (
    select from runs group by event having count(distinct (object, link, prev)) > 1) as changed";

/// What the document about ordering says of its workers' lists, as it must hold here in every
/// snapshot of the tables: a description, and a query for the number of rows that contradict it.
const INVARIANTS: [(&str, &str); 7] = [
    // ORD-13, ORD-30: enough of its wake-ups are on the way.
    (
        "whatever is left of an object has a promise",
        "select count(*) from wakeq.events_v2 where notify_at is null",
    ),
    // ORD-12, ORD-31: to own an object is to have claimed its first event.
    (
        "only the first of an object is claimed",
        "select count(*) from wakeq.events_v2 e
          where locked_at is not null
            and exists (select from wakeq.events_v2 b where b.object = e.object and b.seq < e.seq)",
    ),
    // ORD-12, ORD-14, ORD-15: the owner is recorded with the claim, and nowhere else.
    (
        "what is claimed names its worker, and nothing else does",
        "select count(*) from wakeq.events_v2 where (locked_at is null) <> (worker is null)",
    ),
    // ORD-14, ORD-32: a process that does not own the object runs nothing of it.
    (
        "what runs is claimed",
        "select count(*) from runs r join wakeq.events_v2 e on e.id = r.event
          where r.ended_at is null and e.locked_at is null",
    ),
    // ORD-15, ORD-20: at any time one worker runs one event of an object.
    (
        "one event of an object runs at a time",
        "select count(*) from (
            select from runs r where ended_at is null
                and not exists (select from runs l where l.event = r.event and l.ended_at is not null)
              group by object having count(distinct event) > 1) as beside",
    ),
    // ORD-33: an event in process is not queued as well.
    (
        "no event is run by two processes that live",
        "select count(*) from (
            select from runs where ended_at is null and pid not in (select pid from killed)
              group by event having count(*) > 1) as twice",
    ),
    // ORD-11, ORD-16, ORD-23, ORD-24: ids, rows and the end of the chain change in one step.
    (
        "what is left is the end of the chain, without a gap",
        "select count(*) from (
            select prev, lag(seq) over (partition by object order by seq) as before, o.last_seq,
                   max(seq) over (partition by object) as latest
              from wakeq.events_v2 join wakeq.objects o using (canvas_id, object)) as chains
          where prev <> before or latest <> last_seq",
    ),
];

/// ORD-21: four emitters and four workers, some of which are killed at random moments, and every
/// notification twice. Each object's events run in the order of its chain, none is left out, only
/// those in flight at a kill run twice, and two consumers consume the same, in whatever order they
/// receive it. The invariants hold at every moment. A halted object and a slow one delay no other.
// Shows: ORD-01, ORD-02, ORD-05, ORD-11, ORD-12, ORD-13, ORD-14, ORD-15, ORD-16, ORD-17, ORD-20
// Shows: ORD-23, ORD-24, ORD-27, ORD-28, ORD-29, ORD-30, ORD-31, ORD-32, ORD-33, ORD-34
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn order_outlives_the_processes() {
    let scene = CrashScene::new("order", Durations::crowd()).await;
    sqlx::query("create table killed (pid integer)").execute(&scene.pool).await.unwrap();
    let (objects, each, kills) = (size(10, 50), size(5, 50), size(2, 8));
    let count = 4 * objects * each;
    let mut workers = scene.workers(4, 8).await;
    let stop = CancellationToken::new();
    let samples = tokio::spawn(sample(scene.pool.clone(), stop.clone()));
    let stays = beside(&scene, each).await;
    let (emitters_killed, ()) = tokio::join!(
        emit_and_kill(&scene, objects, each, kills),
        kill_workers(&scene, &mut workers, count, kills)
    );
    let left = "select (count(*) = 0)::integer::bigint from wakeq.events_v2 where object like 'work:%'";
    let since = tokio::time::Instant::now();
    scene.until_at_least(left, 1).await;
    let took = since.elapsed();
    assert_eq!(scene.count(ENDED).await, count as i64);
    assert_eq!((scene.count(OUT_OF_ORDER).await, scene.count(CHANGED).await), (0, 0));
    let whole = "select count(*) from wakeq.objects o where object like 'work:%' and
                  last_seq = (select max(link) from runs r where r.object = o.object)";
    assert_eq!(scene.count(whole).await, objects as i64);
    goes_on(&scene, stays, each).await;
    stop.cancel();
    let samples = samples.await.unwrap();
    assert!(samples > 0);
    assert_eq!(consumers(&scene.pool).await.values().map(Vec::len).sum::<usize>(), count);
    figure("events on objects", format!("{count} on {objects}"));
    figure("workers killed", kills);
    figure("emitters killed amid their emits", emitters_killed);
    figure("all complete after the last emit", format!("{took:.1?}"));
    figure("times that all invariants were looked at", samples);
    list(&scene.extra_runs().await);
}

/// Checks the invariants until stopped; returns how often.
async fn sample(pool: PgPool, stop: CancellationToken) -> usize {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut samples = 0;
    while !stop.is_cancelled() {
        ticks.tick().await;
        for (words, query) in INVARIANTS {
            let against: i64 = sqlx::query_scalar(query).fetch_one(&pool).await.unwrap();
            assert_eq!(against, 0, "{words}");
        }
        samples += 1;
    }
    samples
}

/// For each invariant there is a change that its query notices.
// Shows: ORD-14, ORD-15, ORD-30, ORD-31, ORD-32, ORD-33
#[tokio::test]
async fn a_broken_invariant_is_seen() {
    let scene = CrashScene::new("broken", Durations::quick()).await;
    sqlx::query("create table killed (pid integer)").execute(&scene.pool).await.unwrap();
    let on = || Event::new(WORK, &Work::default()).unwrap().on("work:1").unwrap();
    scene.queue.emit_all(vec![on(), on()]).await.unwrap();
    let broken = [
        "update wakeq.events_v2 set notify_at = null where prev = 0",
        "update wakeq.events_v2 set locked_at = now(), claims = 1 where prev > 0",
        "update wakeq.events_v2 set locked_at = now(), claims = 1 where prev = 0",
        "insert into runs (event, pid, object) select id, 1, object from wakeq.events_v2 where prev = 0",
        "insert into runs (event, pid, object) select id, 1, object from wakeq.events_v2",
        "insert into runs (event, pid, object) select id, pid, object from wakeq.events_v2, generate_series(1, 2) as pid
          where prev = 0",
        "update wakeq.objects set last_seq = last_seq + 1",
    ];
    for ((words, query), breaks) in INVARIANTS.into_iter().zip(broken) {
        let mut transaction = scene.pool.begin().await.unwrap();
        let before: i64 = sqlx::query_scalar(query).fetch_one(&mut *transaction).await.unwrap();
        sqlx::query(breaks).execute(&mut *transaction).await.unwrap();
        let after: i64 = sqlx::query_scalar(query).fetch_one(&mut *transaction).await.unwrap();
        assert!(before == 0 && after > 0, "{words}: {before}, {after}");
    }
}

/// An object that will be halted, and one whose first event takes longer than the test; returns the
/// lane of the first.
async fn beside(scene: &CrashScene, each: usize) -> Lane {
    let on = |name, object: &str, work: Work| Event::new(name, &work).unwrap().on(object).unwrap();
    let fails = Work { first_fails: true, ..Work::lasting(1) };
    let stays =
        (0..=each).map(|at| on(WORK_OR_HALT, "stays", if at == 0 { fails } else { Work::lasting(1) }));
    scene.queue.emit_all(stays.collect()).await.unwrap();
    let slow = (0..=each).map(|_| on(WORK, "slow", Work::lasting(600_000)));
    scene.queue.emit_all(slow.collect()).await.unwrap();
    scene.until_at_least("select count(*) from wakeq.halted_lanes", 1).await;
    scene.until_at_least("select count(*) from runs where object = 'slow'", 1).await;
    Lane { scope: scope(WORK_OR_HALT), object: "stays".parse().unwrap(), queue: None }
}

/// While all others finished, nothing happened on these two; the halted one resumes on request.
async fn goes_on(scene: &CrashScene, stays: Lane, each: usize) {
    let ran = |object| match object {
        "stays" => "select count(distinct event) from runs where object = 'stays'",
        _ => "select count(distinct event) from runs where object = 'slow'",
    };
    assert_eq!((scene.count(ran("stays")).await, scene.count(ran("slow")).await), (1, 1));
    assert!(scene.admin.skip(&stays, &Actor::admin("ops")).await.unwrap());
    scene.until_at_least(ran("stays"), 1 + each as i64).await;
    assert_eq!(scene.count(ran("slow")).await, 1);
}

/// Runs four emitters, one after the other of which is killed and started again; returns how many
/// were killed before they ended.
async fn emit_and_kill(scene: &CrashScene, objects: usize, each: usize, kills: usize) -> usize {
    let role = |name| Role::EmitterOn { name, objects, each, work: Work::lasting(5) };
    let mut emitters: Vec<(u32, Process)> =
        (0..4).map(|name| (name, scene.start(&role(name), None))).collect();
    let mut killed = 0;
    for kill in 1..=kills {
        let wanted = 4 * objects * each * kill / (2 * kills);
        scene.until_at_least("select count(*) from wakeq.emitted_ids", wanted as i64).await;
        let (name, victim) = emitters.remove(0);
        killed += usize::from(victim.child.is_running());
        victim.child.kill_9().await.unwrap();
        emitters.push((name, scene.start(&role(name), None)));
    }
    for (_, emitter) in &emitters {
        emitter.says("emitted").await;
    }
    killed
}

async fn kill_workers(scene: &CrashScene, workers: &mut Vec<Process>, count: usize, kills: usize) {
    for kill in 1..=kills {
        scene.until_at_least(ENDED, (count * kill / (kills + 2)) as i64).await;
        let victim = workers.remove(kill % workers.len());
        scene.kill_9(&victim).await;
        sqlx::query("insert into killed values ($1)").bind(victim.pid()).execute(&scene.pool).await.unwrap();
        let live: Vec<uuid::Uuid> = scene.pool.values("select id from wakeq.events_v2 limit 1000").await;
        let notification = |id| Notification::new(EventId(id), CanvasId::DEFAULT);
        let again: Vec<Notification> = live.into_iter().map(notification).collect();
        // Time is up for some of them on a busy machine: those come once.
        let _ = scene.notifier.publish(&again).await;
        workers.push(scene.worker(8).await);
    }
}

/// What two consumers consume of all that was run, each event sent twice and in another order: the
/// same.
async fn consumers(pool: &PgPool) -> BTreeMap<String, Vec<i64>> {
    let logs = [1, 2].map(|consumer| async move {
        let sent = "select object, link, prev from runs, generate_series(1, 2) as time
                     where object like 'work:%' order by md5(event::text || time || $1)";
        let sent: Vec<(String, i64, i64)> =
            sqlx::query_as(sent).bind(consumer.to_string()).fetch_all(pool).await.unwrap();
        let (mut sent, mut consumed) = (VecDeque::from(sent), BTreeMap::<String, Vec<i64>>::new());
        while let Some((object, id, prev)) = sent.pop_front() {
            let log = consumed.entry(object.clone()).or_default();
            match consume(log.last().copied().unwrap_or(0), Link { id, prev }) {
                Consumption::Consume => log.push(id),
                Consumption::Delay => sent.push_back((object, id, prev)),
                Consumption::Done => {}
            }
        }
        consumed
    });
    let [one, other] = logs;
    let (one, other) = tokio::join!(one, other);
    assert_eq!(one, other);
    one
}

/// An emitter dies before its transaction ends: nothing of it remains, and no other emitter is
/// blocked.
// Shows: ORD-09, ORD-16, ORD-17, ORD-24, ORD-34
#[tokio::test]
async fn an_emitter_dies_within_its_transaction() {
    let scene = CrashScene::new("within", Durations::quick()).await;
    let on = || Event::new(WORK, &Work::default()).unwrap().on("work:1").unwrap();
    let before = scene.queue.emit(on()).await.unwrap().link.unwrap();
    let victim = scene.start(&Role::EmitterWithin, None);
    victim.says(&format!("linked {}", before.id)).await;
    let refused = scene.queue.emit(on()).await;
    assert!(refused.is_err(), "its transaction holds the object: {refused:?}");
    scene.kill_9(&victim).await;
    let freed = async {
        loop {
            if let Ok(emitted) = scene.queue.emit(on()).await {
                return emitted.link.unwrap();
            }
        }
    };
    let after = tokio::time::timeout(TIMEOUT, freed).await.expect("the object is free");
    assert_eq!(after.prev, before.id);
    let object = scene.queue.object(CanvasId::DEFAULT, "work:1").await.unwrap().unwrap();
    assert_eq!((object.last_id, object.state), (after.id, None));
    assert_eq!(scene.count("select count(*) from wakeq.events_v2").await, 2);
}

/// A worker dies after its handler has ended, but before that is recorded: the event runs again,
/// with the same link, and before any event behind it.
// Shows: ORD-17, ORD-23, ORD-25, ORD-27, ORD-28
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_worker_dies_before_it_records_the_end() {
    let scene = CrashScene::new("processed", Durations::quick()).await;
    let on = || Event::new(WORK, &Work::lasting(1)).unwrap().on("work:1").unwrap();
    let emitted = scene.queue.emit_all(vec![on(), on()]).await.unwrap();
    let links: Vec<Link> = emitted.iter().filter_map(|emitted| emitted.link).collect();
    let role = Role::Worker { capacity: 8, shutdown_grace_ms: 1_000 };
    let victim = scene.start(&role, Some("link.processed"));
    scene.until_at_least(ENDED, 1).await;
    victim.child.ended().await;
    scene.died(victim.pid()).await;
    let _heir = scene.worker(8).await;
    scene.until_empty().await;
    let ran: Vec<(i64, i64)> = scene.pool.table("select link, prev from runs order by started_at").await;
    assert_eq!(ran, [links[0], links[0], links[1]].map(|link| (link.id, link.prev)));
    assert_eq!(scene.count(OUT_OF_ORDER).await, 0);
}

/// ORD-22: a worker dies between the removal of an event and the hand-over. The next event has
/// waited so long that its own promise was an hour away; the removal restored it.
// Shows: EV2-58, ORD-17, ORD-34
#[tokio::test]
async fn a_worker_dies_before_it_hands_over() {
    let scene = CrashScene::new("hand-over", Durations::quick()).await;
    let victim = scene.start(&Role::Worker { capacity: 8, shutdown_grace_ms: 1_000 }, Some("link.removed"));
    victim.says("ready").await;
    let on = |ms| Event::new(WORK, &Work::lasting(ms)).unwrap().on("work:1").unwrap();
    scene.queue.emit(on(2_000)).await.unwrap();
    scene.until_at_least("select count(*) from runs", 1).await;
    // The first can't end before the second one was looked at.
    let mut held = scene.pool.begin().await.unwrap();
    sqlx::query("select from runs for update").execute(&mut *held).await.unwrap();
    let next = scene.queue.emit(on(0)).await.unwrap().id;
    victim.says(&format!("ended {next} EarlierLeft")).await;
    held.rollback().await.unwrap();
    let far = sqlx::query("update wakeq.events_v2 set notify_at = now() + interval '1 h' where id = $1");
    far.bind(next.0).execute(&scene.pool).await.unwrap();
    scene.until_at_least(ENDED, 1).await;
    let gone = "select (count(*) = 1)::integer::bigint from wakeq.events_v2";
    scene.until_at_least(gone, 1).await;
    scene.died(victim.pid()).await;
    let heir = scene.worker(8).await;
    scene.until_empty().await;
    assert_eq!((scene.completed().await, scene.count(OUT_OF_ORDER).await), (2, 0));
    drop(heir);
}
