//! Parking under a rule, lifting it, and what comes between the two.

use std::time::Duration;

use super::{Table, scope, tester, told};
use crate::event::{CanvasId, EventId, RuleKind};
use crate::store::Store;

const PARKED: &str = "select count(*) from wakeq.events_v2 where notify_at is null";

impl Table {
    pub(super) async fn pause(&self) {
        self.store.add_rule(RuleKind::Pause, &scope(), None, None, &tester()).await.unwrap();
    }

    /// Lifts the pause; returns the id of the job that wakes what waited.
    pub(super) async fn unpause(&self) -> i64 {
        self.store.lift_rule(RuleKind::Pause, &scope(), &tester()).await.unwrap().jobs[0]
    }

    pub(crate) async fn parked(&self) -> i64 {
        self.number(PARKED).await
    }
}

/// Runs a job to its end.
pub(super) async fn resume(store: &Store, job: i64) -> Vec<EventId> {
    let mut woken = Vec::new();
    loop {
        let page = store.resume_page(job).await.unwrap();
        woken.extend(page.notifications.into_iter().map(|notification| notification.id));
        if !page.more {
            return woken;
        }
    }
}

/// Only under a rule in force, and only on its own handler.
// Shows: EV2-22
#[tokio::test]
async fn events_are_parked_only_while_a_rule_stands() {
    let table = Table::new().await;
    let (held, free) = (table.add(2).await, table.add_for(2, "other").await);
    assert_eq!(table.store.park(&held).await.unwrap(), [false, false]);
    table.pause().await;
    assert_eq!(table.store.park(&[held[0], free[0]]).await.unwrap(), [true, false]);
    table.run("update wakeq.scheduling_rules set until = now() - interval '1 s'").await;
    assert_eq!(table.store.park(&[held[1]]).await.unwrap(), [false], "the rule has ended");
    assert_eq!(table.parked().await, 1);
    table.unpause().await;
    assert_eq!(table.store.park(&[held[1]]).await.unwrap(), [false], "the rule is gone");
}

/// Two workers park while the pause is lifted; the job finds whatever they parked.
// Shows: EV2-29, EV2-42
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn nothing_stays_parked_behind_a_lifted_rule() {
    let table = Table::new().await;
    let ids = table.add(60).await;
    let (mut parked, mut refused) = (0, 0);
    for round in 0..150 {
        table.pause().await;
        let mut parkers = tokio::task::JoinSet::new();
        for half in ids.chunks(30) {
            let (store, half) = (table.store.clone(), super::shuffled(half, round));
            parkers.spawn(async move {
                let mut parked = Vec::new();
                for batch in half.chunks(6) {
                    parked.extend(store.park(batch).await.unwrap());
                }
                parked
            });
        }
        // At another moment in every round: after none to all of the first statements.
        for _ in 0..round % 10 {
            table.number("select 1::bigint").await;
        }
        let job = table.unpause().await;
        let resumed = tokio::spawn({
            let store = table.store.clone();
            async move { resume(&store, job).await }
        });
        let answers = parkers.join_all().await.concat();
        resumed.await.unwrap();
        assert_eq!(table.parked().await, 0, "round {round}");
        parked += answers.iter().filter(|answer| **answer).count();
        refused += answers.iter().filter(|answer| !**answer).count();
    }
    assert!(parked > 500 && refused > 500, "the rounds met nothing: {parked} parked, {refused} refused");
}

/// A rule can be lifted and renewed, however many workers constantly share-lock its row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_is_lifted_while_workers_park_without_end() {
    let table = Table::new().await;
    let ids = table.add(400).await;
    table.pause().await;
    let mut parkers = tokio::task::JoinSet::new();
    for part in ids.chunks(100) {
        let (store, part) = (table.store.clone(), part.to_vec());
        parkers.spawn(async move { while store.park(&part).await.unwrap()[0] {} });
    }
    table.pause().await;
    let job = table.unpause().await;
    parkers.join_all().await;
    resume(&table.store, job).await;
    assert_eq!(table.parked().await, 0);
}

/// Lifting one kind leaves the other, and says so.
// Shows: EV2-08, EV2-43, EV2-56
#[tokio::test]
async fn lifting_one_kind_leaves_the_other() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let add =
        async |kind, reason| table.store.add_rule(kind, &scope(), reason, None, &tester()).await.unwrap();
    let paused = add(RuleKind::Pause, None).await;
    assert!(paused.new && !paused.other_stands);
    let blocked = add(RuleKind::Block, Some("broken")).await;
    assert!(blocked.new && blocked.other_stands);
    assert!(!add(RuleKind::Block, None).await.new);
    let rule = async |table: &Table| table.store.load(&ids).await.unwrap()[0].as_ref().unwrap().schedule.rule;
    assert_eq!(rule(&table).await, Some(RuleKind::Block));
    let lifted = table.store.lift_rule(RuleKind::Block, &scope(), &tester()).await.unwrap();
    assert!(lifted.jobs.len() == 1 && lifted.other_stands);
    assert_eq!(rule(&table).await, Some(RuleKind::Pause));
    let lifted = table.store.lift_rule(RuleKind::Block, &scope(), &tester()).await.unwrap();
    assert!(lifted.jobs.is_empty() && lifted.other_stands, "it did not stand any more");
    let lifted = table.store.lift_rule(RuleKind::Pause, &scope(), &tester()).await.unwrap();
    assert!(lifted.jobs.len() == 1 && !lifted.other_stands);
    assert_eq!(rule(&table).await, None);
    assert_eq!(table.number("select count(*) from wakeq.resume_jobs").await, 1, "of both");
}

/// A claim that has not seen a pause can't commit after the pause has returned.
// Shows: EV2-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_claim_commits_after_a_pause_has_returned() {
    let table = Table::new().await;
    let ids = table.add(60).await;
    let mut late = 0;
    for round in 0..30 {
        let store = table.store.clone();
        let batches: Vec<Vec<EventId>> = super::shuffled(&ids, round).chunks(6).map(<[_]>::to_vec).collect();
        let claiming = tokio::spawn(async move {
            for batch in batches {
                store.claim(&told(&batch), &super::limits()).await.unwrap();
            }
        });
        for _ in 0..round % 6 {
            table.number("select 1::bigint").await;
        }
        table.pause().await;
        let claimed = "select count(*) from wakeq.events_v2 where locked_at is not null";
        let at_return = table.number(claimed).await;
        claiming.await.unwrap();
        late += table.number(claimed).await - at_return;
        table.unpause().await;
        table.run("update wakeq.events_v2 set locked_at = null, worker = null").await;
    }
    assert_eq!(late, 0);
}

/// A worker without the handler moves the promise and notes the handler; one that has the handler
/// creates a job, which wakes.
#[tokio::test]
async fn deferred_events_wait_and_are_woken_when_their_handler_registers() {
    let table = Table::new().await;
    let ids = table.add_for(3, "new").await;
    table.store.defer(&ids[..2]).await.unwrap();
    table.store.defer(&ids[..1]).await.unwrap();
    let deferred = "select count(*) from wakeq.events_v2
                     where notify_at between now() + interval '4 min' and now() + interval '5 min'";
    assert_eq!(table.number(deferred).await, 2);
    let scope_of = |canvas| super::HandlerScope { canvas, name: "new".parse().unwrap(), ..scope() };
    let stranger = crate::event::CanvasId(uuid::Uuid::from_u128(7));
    for (canvas, known) in [(scope().canvas, false), (stranger, true)] {
        let (modifier, recently) = (crate::event::Name::no_modifier(), Duration::from_secs(60));
        let since = table.store.unknown_since(&scope_of(canvas), &modifier, recently).await.unwrap();
        assert_eq!(since.is_none(), known, "{canvas}");
    }
    let elsewhere = format!("{}/WORKER/new/_", uuid::Uuid::from_u128(7));
    assert_eq!(table.store.register(&["WORKER/old/_".into()], &[elsewhere]).await.unwrap(), 0);
    assert_eq!(table.store.register(&["WORKER/new/_".into()], &[]).await.unwrap(), 1);
    assert_eq!(table.store.register(&["WORKER/new/_".into()], &[]).await.unwrap(), 0, "once");
    let job = table.number("select id from wakeq.resume_jobs where kind = 'registered'").await;
    let mut woken = resume(&table.store, job).await;
    woken.sort_unstable();
    let mut expected = ids[..2].to_vec();
    expected.sort_unstable();
    assert_eq!(woken, expected, "the third has a promise that is due anyway");
    assert_eq!(table.number(deferred).await, 0);
}

/// Each look by the probe doubles the wait for the next, up to an hour; a registration finds all of
/// them, and only those of its canvas.
#[tokio::test]
async fn events_of_unknown_handlers_are_looked_at_less_and_less_often() {
    let table = Table::new().await;
    let ids = table.add_for(7, "new").await;
    let other = uuid::Uuid::from_u128(7);
    sqlx::query("update wakeq.events_v2 set canvas_id = $1 where id = $2")
        .bind(other)
        .bind(ids[6].0)
        .execute(&table.pool)
        .await
        .unwrap();
    for (probes, id) in [0, 1, 2, 3, 4, 1000, 1000].into_iter().zip(&ids) {
        sqlx::query("update wakeq.events_v2 set probes = $1 where id = $2")
            .bind(probes)
            .bind(id.0)
            .execute(&table.pool)
            .await
            .unwrap();
    }
    table.store.defer(&ids).await.unwrap();
    let minutes = "select array_agg(round(extract(epoch from notify_at - now()) / 60)::integer order by probes, notify_at)
                     = array[5, 10, 20, 40, 60, 60, 60] from wakeq.events_v2";
    assert!(table.holds(minutes).await);
    let own = format!("{}/WORKER/new/_", CanvasId::DEFAULT);
    assert_eq!(table.store.register(&[], &[own]).await.unwrap(), 1);
    let job = table.number("select id from wakeq.resume_jobs where kind = 'registered'").await;
    let mut woken = resume(&table.store, job).await;
    woken.sort_unstable();
    let mut expected = ids[..6].to_vec();
    expected.sort_unstable();
    assert_eq!(woken, expected, "not that of the other canvas");
}

/// An event whose owner died waits for its handler like any other; one that is running elsewhere is
/// left alone.
#[tokio::test]
async fn only_events_that_run_are_not_deferred() {
    let table = Table::new().await;
    let ids = table.add_for(2, "new").await;
    table.run("update wakeq.events_v2 set claims = 1, locked_at = now() - interval '1 h'").await;
    let running = sqlx::query("update wakeq.events_v2 set locked_at = now() where id = $1").bind(ids[1].0);
    running.execute(&table.pool).await.unwrap();
    table.store.defer(&ids).await.unwrap();
    let deferred = "select count(*) from wakeq.events_v2 where notify_at > now() + interval '4 min'";
    assert_eq!(table.number(deferred).await, 1);
    assert_eq!(table.number("select count(*) from wakeq.unknown_handlers").await, 1);
}

/// The nearest of several requests counts, no promise is put off, and none is made where there is
/// none.
// Shows: PUSH-07
#[tokio::test]
async fn a_promise_only_comes_nearer() {
    let table = Table::new().await;
    let ids = table.add(3).await;
    table.run("update wakeq.events_v2 set notify_at = now() + interval '5 min'").await;
    for (id, promise) in [(ids[1], "now() + interval '5 s'"), (ids[2], "null")] {
        let statement = format!("update wakeq.events_v2 set notify_at = {promise} where id = $1");
        sqlx::query(sqlx::AssertSqlSafe(statement)).bind(id.0).execute(&table.pool).await.unwrap();
    }
    let wish = |index: usize, seconds| (ids[index], Duration::from_secs(seconds));
    let gone = (EventId::new(), Duration::from_secs(1));
    let asked = [wish(0, 60), gone, wish(0, 20), wish(1, 20), wish(2, 20), wish(0, 40), wish(0, 3600)];
    table.store.bring_forward(&asked).await.unwrap();
    let promises: Vec<Option<f64>> = sqlx::query_scalar(
        "select extract(epoch from notify_at - now())::float8 from wakeq.events_v2 order by array_position($1, id)",
    )
    .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
    .fetch_all(&table.pool)
    .await
    .unwrap();
    let [Some(brought), Some(kept), None] = promises[..] else { panic!("{promises:?}") };
    assert!(kept <= 5.0 && (5.0..=20.0).contains(&brought), "{promises:?}");
}
