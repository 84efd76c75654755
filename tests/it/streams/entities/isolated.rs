//! Events that hold up their processor or end its process, and statements that take too long: other
//! events continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use wakeq::{CanvasId, StoreError};
use wakeq_streams::entities::EntityOutcome;
use wakeq_streams::{
    Applied, ConsumerError, Entities, Entity, EntityAnswer, EntityConfig, EntityEvent, EntityProcessor,
    EntityStatus, EventSubscriber, Health, Rejection,
};

use super::{Account, Bank, Change, OTHER, accept, account, config, of, withdraw};
use crate::support::child_processes::{Durations, Role};
use crate::support::crash_scene::CrashScene;
use crate::support::spy_log::SpyLog;
use crate::support::{Statements, TIMEOUT};

/// Once set, hanging threads continue.
static ENDS: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
static ENDED: std::sync::Condvar = std::sync::Condvar::new();
/// How often the event that is slow once was slow.
static SLOW: AtomicUsize = AtomicUsize::new(0);

fn hang() {
    let ends = ENDS.lock().unwrap();
    drop(ENDED.wait_while(ends, |ends| !*ends).unwrap());
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Adds { number: i64 },
    Hangs,
    HangsInValidate,
    Panics,
    SlowOnce,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sum {
    sum: i64,
}

struct Slow;

impl Entity for Slow {
    const TYPE: &'static str = "slow";
    type State = Sum;
    type Event = Step;

    fn validate(_: &Sum, step: &Step) -> Result<(), Rejection> {
        if matches!(step, Step::HangsInValidate) {
            hang();
        }
        Ok(())
    }

    fn apply(Sum { sum }: Sum, step: &Step) -> Applied<Sum> {
        let sum = match step {
            Step::Adds { number } => sum + number,
            Step::Panics => panic!("apply was told to"),
            Step::SlowOnce if SLOW.fetch_add(1, Ordering::SeqCst) > 0 => sum + 100,
            Step::Hangs | Step::SlowOnce => {
                hang();
                sum
            }
            Step::HangsInValidate => sum,
        };
        Applied::new(Sum { sum }).result(&sum)
    }
}

fn with_reply(event: &impl Serialize) -> EntityEvent {
    EntityEvent::of(event).unwrap().reply_to("told").unwrap()
}

/// An event that hangs is found, retried and then dead, and its sender gets an answer; everything
/// else continues, in the same process. An event that was slow once is processed.
// Shows: ENT-X1
#[tokio::test]
async fn an_event_that_hangs_dies_alone() {
    let bank = Bank::open().await;
    let (ada, bob) = (of(CanvasId::DEFAULT, "slow", "ada"), of(OTHER, "slow", "ada"));
    let adds = |number| Step::Adds { number };
    let steps = [
        (&ada, adds(1)),
        (&ada, Step::Hangs),
        (&bob, adds(10)),
        (&ada, adds(2)),
        (&ada, Step::Panics),
        (&bob, Step::HangsInValidate),
        (&bob, Step::SlowOnce),
        (&ada, adds(4)),
        (&bob, adds(20)),
    ];
    let events = steps.iter().map(|(entity, step)| ((*entity).clone(), with_reply(step)));
    let sent = bank.entities.send_all(events.collect()).await.unwrap();
    let stall = Duration::from_millis(200);
    let processor = bank.processor_of::<Slow>(EntityConfig { stall, attempts: 2, ..config() });
    accept(&processor, 1).await;
    let decided = steps.iter().zip(&sent).map(|((entity, _), sent)| bank.ended_on(entity.canvas, sent.id.0));
    let outcomes = join_all(decided).await;
    let dead: Vec<usize> =
        (0..steps.len()).filter(|at| outcomes[*at].status == EntityStatus::Failed).collect();
    assert_eq!(dead, [1, 4, 5], "{outcomes:?}");
    for at in [1, 5] {
        let error = outcomes[at].error.as_ref().unwrap();
        assert_eq!(error, "its processor hung, or its process ended, 2 times while it was processed alone");
    }
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await.unwrap().0.sum, 7);
    assert_eq!(processor.state(OTHER, "ada").await.unwrap().0.sum, 130);
    assert_eq!(*processor.health().borrow(), Health::Healthy, "it has never stopped");
    let answers: Vec<EntityAnswer> = bank.waiting("told").await;
    let failed = |answer: &&EntityAnswer| answer.outcome == EntityOutcome::Failed;
    assert_eq!((answers.len(), answers.iter().filter(failed).count()), (9, 3));
    let buried: Vec<i32> =
        bank.stage.pool.values("select attempts from wakeq.consumer_dead order by seq").await;
    assert_eq!(buried, [2, 2, 2]);
    // Threads that hung return, and their results are dropped.
    *ENDS.lock().unwrap() = true;
    ENDED.notify_all();
    let last = bank.sent_to(&ada, EntityEvent::of(&adds(8)).unwrap()).await;
    assert_eq!(last.result.as_deref(), Some("15"));
    withdraw(&processor).await;
}

/// An event that ends its process takes a fixed number of owners with it; the events beside it are
/// processed once.
// Shows: ENT-X1
#[tokio::test]
async fn an_event_that_kills_dies_alone() {
    let scene = CrashScene::new("entities", Durations::quick()).await;
    let entities = Entities::new(scene.queue.clone());
    let (deposit, kills) = (Change::Deposit { cents: 5 }, Change::Kills);
    let changes = [("a0", &deposit), ("a1", &deposit), ("a1", &kills), ("a1", &deposit), ("a2", &deposit)];
    let events = changes.iter().map(|(id, change)| (account(id), with_reply(change)));
    let sent = entities.send_all(events.collect()).await.unwrap();
    // One owner was lost with the whole batch, and three with the event alone.
    for epoch in 1..=4 {
        let owner = scene.start(&Role::Accounts { epoch, snapshot_every: 1 }, None);
        owner.child.ended().await;
    }
    let _last = scene.start(&Role::Accounts { epoch: 5, snapshot_every: 1 }, None);
    scene.until_at_least("select count(*) from wakeq.entity_events where status <> 'accepted'", 5).await;
    let mut statuses = Vec::new();
    for sent in &sent {
        let decided = entities.status(CanvasId::DEFAULT, sent.id.0).await.unwrap().unwrap().events.remove(0);
        statuses.push((decided.status != EntityStatus::Failed, decided.version));
    }
    let processed = |version| (true, Some(version));
    assert_eq!(statuses, [processed(1), processed(1), (false, None), processed(2), processed(1)]);
    let dead = scene.count("select sum(attempts)::bigint from wakeq.consumer_dead").await;
    assert_eq!(dead, 3);
    let answers = scene.count("select count(*) from wakeq.events_v2 where module = 'ANSWER'").await;
    assert_eq!(answers, 5);
}

/// A processor over a log that times out on pages of more than `most` events.
fn with_timing_out_log(bank: &Bank, most: &Arc<AtomicUsize>) -> (Arc<SpyLog>, EntityProcessor<Account>) {
    let most = Arc::clone(most);
    let log = SpyLog::new(Arc::new(bank.log.clone()), move |limit| {
        let (statement, after) = ("read the log", Duration::from_secs(6));
        let late = StoreError::TimedOut { statement, after, ended: true };
        if limit.events > most.load(Ordering::SeqCst) {
            return Err(ConsumerError::unavailable("the log can't be read", late));
        }
        Ok(())
    });
    let processor = EntityProcessor::new(bank.stage.queue.clone(), log.clone(), config()).unwrap();
    (log, processor)
}

/// A read that takes too long is split into smaller ones until there is an answer.
// Shows: ENT-X2
#[tokio::test]
async fn a_slow_read_is_split_into_smaller_ones() {
    let bank = Bank::open().await;
    let mut sent = Vec::new();
    for _ in 0..20 {
        sent.push(bank.deposit("ada", 1).await);
    }
    let (log, processor) = with_timing_out_log(&bank, &Arc::new(AtomicUsize::new(8)));
    accept(&processor, 1).await;
    for sent in sent {
        assert_eq!(bank.ended(sent.id.0).await.status, EntityStatus::Completed);
    }
    assert_eq!(log.limits()[..7], [500, 250, 125, 62, 31, 15, 7]);
}

/// A processor whose reads take too long however small they are is unhealthy: it rests for half a
/// minute, and works if it is given its type then.
// Shows: ENT-X2
#[tokio::test]
async fn a_processor_whose_statements_all_take_too_long_rests() {
    let bank = Bank::open().await;
    let most = Arc::new(AtomicUsize::new(0));
    let (log, processor) = with_timing_out_log(&bank, &most);
    processor.accept(processor.entity_type().source(), 1);
    let why = tokio::time::timeout(TIMEOUT, super::unhealthy(&processor)).await.unwrap();
    assert!(why.contains("even for the smallest request"), "{why}");
    assert_eq!(log.limits().last(), Some(&1));
    assert!(!processor.is_ready());
    most.store(1, Ordering::SeqCst);
    let sent = bank.deposit("ada", 1).await;
    let mut health = processor.health();
    tokio::time::pause();
    let since = tokio::time::Instant::now();
    health.wait_for(|health| *health == Health::Healthy).await.unwrap();
    let rested = since.elapsed();
    tokio::time::resume();
    assert!(rested <= Duration::from_secs(30) && rested > Duration::from_secs(20), "{rested:?}");
    accept(&processor, 2).await;
    assert_eq!(bank.ended(sent.id.0).await.status, EntityStatus::Completed);
}
