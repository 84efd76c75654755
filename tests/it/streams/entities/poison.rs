//! Events that hang, panic or end their process, among many others on two canvases: the others are
//! processed meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use wakeq::{CanvasId, Timestamp};
use wakeq_streams::entities::{EntityEventStatus, EntityOutcome};
use wakeq_streams::{
    Applied, Entities, Entity, EntityAnswer, EntityConfig, EntityEvent, EntityStatus, EventSubscriber,
    Health, Rejection, SentToEntity,
};

use super::{Bank, Change, OTHER, accept, config, of, withdraw};
use crate::support::child_processes::{Durations, Role};
use crate::support::crash_scene::{CrashScene, figure, is_full, size};
use crate::support::{Statements, wait_while};

const OPEN: &str = "select count(*) from wakeq.entity_events where status = 'accepted'";
/// Entities on each of the canvases, besides the one with the poison.
const BESIDE: usize = 50;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Adds,
    Hangs,
    Panics,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Count {
    adds: usize,
}

struct Crowd;

impl Entity for Crowd {
    const TYPE: &'static str = "crowd";
    type State = Count;
    type Event = Step;

    fn validate(_: &Count, _: &Step) -> Result<(), Rejection> {
        Ok(())
    }

    fn apply(Count { adds }: Count, step: &Step) -> Applied<Count> {
        match step {
            Step::Adds => {}
            Step::Hangs => loop {
                std::thread::park();
            },
            Step::Panics => panic!("apply was told to"),
        }
        Applied::new(Count { adds: adds + 1 }).result(&adds)
    }
}

/// Sends the poison in the middle of the others, with an event of the same entity right before and
/// right after it; returns the poison and the event after it.
async fn send_all<T: Serialize>(
    entities: &Entities,
    entity_type: &str,
    others: usize,
    usual: &T,
    poison: &T,
) -> (SentToEntity, SentToEntity) {
    let to = |canvas, name: &str| of(canvas, entity_type, name);
    let event = |step| EntityEvent::of(step).unwrap();
    let other = |at: usize| {
        let canvas = if at.is_multiple_of(2) { CanvasId::DEFAULT } else { OTHER };
        (to(canvas, &format!("a{}", at / 2 % BESIDE)), event(usual))
    };
    let mut all: Vec<_> = (0..others).map(other).collect();
    // The same name on the first canvas is another entity.
    all[others / 2 + 1] = (to(CanvasId::DEFAULT, "poisoned"), event(usual));
    all[others / 2 - 1] = (to(OTHER, "poisoned"), event(usual));
    let with_reply = |step| event(step).reply_to("told").unwrap();
    all.insert(others / 2, (to(OTHER, "poisoned"), with_reply(poison)));
    all.insert(others / 2 + 1, (to(OTHER, "poisoned"), with_reply(usual)));
    let mut sent = Vec::new();
    for page in all.chunks(1000) {
        sent.extend(entities.send_all(page.to_vec()).await.unwrap());
    }
    (sent[others / 2], sent[others / 2 + 1])
}

async fn status_of(entities: &Entities, sent: &SentToEntity) -> EntityEventStatus {
    entities.status(OTHER, sent.id.0).await.unwrap().unwrap().events.remove(0)
}

/// Returns the poison's status, the longest standstill of the others in seconds, and the stall.
async fn check(poison: Step) -> (EntityEventStatus, f64, Duration) {
    let bank = Bank::open().await;
    let others = size(200, 10_000);
    let (sent, behind) = send_all(&bank.entities, "crowd", others, &Step::Adds, &poison).await;
    let stall = Duration::from_secs(if is_full() { 5 } else { 1 });
    let processor = bank.processor_of::<Crowd>(EntityConfig { stall, ..config() });
    let begun: Timestamp = bank.stage.pool.value("select clock_timestamp()").await;
    accept(&processor, 1).await;
    for event in [&sent, &behind] {
        bank.ended_on(OTHER, event.id.0).await;
    }
    // An event that panics is dead before those that were sent later.
    wait_while!(bank.count(OPEN).await > 0, "the others are done");
    let dead = status_of(&bank.entities, &sent).await;
    assert_eq!(dead.status, EntityStatus::Failed);
    let version = status_of(&bank.entities, &behind).await.version;
    assert_eq!(version, Some(2), "right behind the one before the poison");
    assert_eq!(*processor.health().borrow(), Health::Healthy);
    let answers: Vec<EntityAnswer> = bank.waiting("told").await;
    let outcomes: BTreeMap<_, _> = answers.iter().map(|answer| (answer.event_id, answer.outcome)).collect();
    assert_eq!(outcomes, [(sent.id, EntityOutcome::Failed), (behind.id, EntityOutcome::Processed)].into());
    let buried: Vec<(Uuid, i32)> =
        bank.stage.pool.table("select id, attempts from wakeq.consumer_dead").await;
    assert_eq!(buried, [(sent.id.0, 3)]);
    let (done, last, standstill): (i64, Timestamp, f64) = sqlx::query_as(
        "select count(*), max(ended_at), extract(epoch from max(gap))::float8
           from (select ended_at, ended_at - lag(ended_at, 1, $1) over (order by ended_at) as gap from wakeq.entity_events
                  where status = 'processed' and event_id <> $2) as others",
    )
    .bind(begun)
    .bind(behind.id.0)
    .fetch_one(&bank.stage.pool)
    .await
    .unwrap();
    assert_eq!(done, i64::try_from(others).unwrap());
    let is_beside = matches!(poison, Step::Hangs);
    assert!(!is_beside || Some(last) <= dead.ended_at, "the others are done before the poison is dead");
    // The entity is no longer isolated.
    let next = EntityEvent::of(&Step::Adds).unwrap();
    assert_eq!(bank.sent_to(&of(OTHER, "crowd", "poisoned"), next).await.version, Some(3));
    assert_eq!(processor.state(OTHER, "poisoned").await.map(|(state, _)| state.adds), Some(3));
    withdraw(&processor).await;
    assert_eq!(bank.count("select count(*) from wakeq.entity_asides").await, 0);
    figure("others", others);
    figure("longest standstill of the others", format!("{standstill:.2} s, with a stall of {stall:?}"));
    (dead, standstill, stall)
}

/// An event that hangs holds up the others once, for `stall`, and is retried beside them.
// Shows: ENT-X1
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_others_are_done_while_an_event_hangs() {
    let (dead, standstill, stall) = check(Step::Hangs).await;
    assert!(dead.error.unwrap().starts_with("its processor hung, or its process ended, 3 times"));
    assert!(standstill < 2.5 * stall.as_secs_f64(), "{standstill}");
}

/// An event that panics holds up no other.
// Shows: ENT-X1
#[tokio::test]
async fn the_others_are_done_while_an_event_panics() {
    let (dead, standstill, stall) = check(Step::Panics).await;
    assert!(dead.error.unwrap().contains("apply was told to"));
    assert!(standstill < stall.as_secs_f64(), "{standstill}");
}

/// An event that ends its process takes two owners with it, and the next ones only after the rest
/// is done.
// Shows: ENT-X1
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_others_are_done_while_an_event_kills() {
    let scene = CrashScene::new("poison", Durations::quick()).await;
    let entities = Entities::new(scene.queue.clone());
    let others = size(200, 10_000);
    let deposit = Change::Deposit { cents: 1 };
    let (sent, behind) = send_all(&entities, "account", others, &deposit, &Change::Kills).await;
    // One owner is lost with a whole batch, one with the event alone, and the third one has done
    // everything else before it retries the event.
    for (epoch, left) in [(1, others / 2), (2, others / 2), (3, 2), (4, 2)] {
        scene.start(&Role::Accounts { epoch, snapshot_every: 1 }, None).child.ended().await;
        let open = scene.count(OPEN).await;
        assert!(open >= 2 && open <= i64::try_from(left + 502).unwrap(), "{open} are left of owner {epoch}");
        assert!(epoch < 3 || open == 2, "{open} are left of owner {epoch}");
    }
    let last = scene.start(&Role::Accounts { epoch: 5, snapshot_every: 1 }, None);
    scene.until_at_least("select -count(*) from wakeq.entity_events where status = 'accepted'", 0).await;
    let dead = status_of(&entities, &sent).await;
    assert!(dead.error.unwrap().starts_with("its processor hung, or its process ended, 3 times"));
    assert_eq!(status_of(&entities, &behind).await.version, Some(2));
    let done = "select count(*) from wakeq.entity_events where status = 'processed'";
    assert_eq!(scene.count(done).await, i64::try_from(others + 1).unwrap());
    let answers = "select count(*) from wakeq.events_v2 where module = 'ANSWER'";
    assert_eq!(scene.count(answers).await, 2);
    figure("others, done by the third owner", others);
    drop(last);
}
