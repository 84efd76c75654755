//! The owner of a type is killed again and again, at any moment: its successor's memory matches the
//! repository, and every sender gets one result.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;
use wakeq::{CanvasId, EventId};
use wakeq_streams::{Entities, Entity, EntityError, EntityEvent, EntityId};

use super::{Account, Balance, Change, STORED, account};
use crate::simulation::world::dice::Dice;
use crate::support::child_processes::{Durations, Process, Role};
use crate::support::crash_scene::{CrashScene, figure, size};

const ACCOUNTS: usize = 5;
const DECIDED: &str = "select count(*) from wakeq.entity_events where status <> 'accepted'";

/// What an owner prints of its memory: each account's version and state.
type Memory = BTreeMap<String, (i64, Balance)>;

async fn memory(owner: &Process) -> (Memory, u64) {
    let ready = owner.says("memory ").await;
    let (replayed, said) = ready.trim_start_matches("memory ").split_once(' ').unwrap();
    (serde_json::from_str(said).unwrap(), replayed.parse().unwrap())
}

/// The first `version` events of an account, folded by the test's own rules.
async fn fold(scene: &CrashScene, name: &str, version: i64) -> Balance {
    let sql = "select name::text, payload::text from wakeq.log where category = 'entities:account' and stream = $1 order by seq limit $2";
    let stored: Vec<(String, String)> =
        sqlx::query_as(sql).bind(name).bind(version).fetch_all(&scene.pool).await.unwrap();
    assert_eq!(stored.len(), usize::try_from(version).unwrap(), "{name}");
    stored.into_iter().fold(Balance::default(), |balance, (name, payload)| {
        let change: Change = serde_json::from_str(&format!("{{\"{name}\": {payload}}}")).unwrap();
        assert!(Account::validate(&balance, &change).is_ok(), "only valid events are stored");
        Account::apply(balance, &change).state().clone()
    })
}

async fn matches_its_folds(scene: &CrashScene, memory: &Memory, kills: usize) {
    for (name, (version, balance)) in memory {
        assert_eq!(*balance, fold(scene, name, *version).await, "{name} after {kills} kills");
    }
}

/// Sends events for all accounts, some of them for the second time.
async fn send(entities: &Entities, dice: &mut Dice, sent: &mut Vec<(EntityId, EntityEvent)>) {
    let mut events = Vec::new();
    for _ in 0..20 {
        let id = EventId(Uuid::from_u64_pair(7, sent.len() as u64 + events.len() as u64));
        let cents = u32::try_from(dice.below(10)).unwrap();
        let change = match dice.below(3) {
            0 => Change::Withdraw { cents },
            _ => Change::Deposit { cents },
        };
        let event = EntityEvent::of(&change).unwrap().reply_to("told").unwrap().id(id);
        events.push((account(&format!("a{}", dice.below(ACCOUNTS))), event));
    }
    sent.extend(events.iter().cloned());
    let again = (0..2).map(|_| sent[dice.below(sent.len())].clone());
    for event in again.collect::<Vec<_>>() {
        if !events.iter().any(|(_, known)| format!("{known:?}") == format!("{:?}", event.1)) {
            events.push(event);
        }
    }
    loop {
        match entities.send_all(events.clone()).await {
            Ok(_) => return,
            // The same event twice in one call.
            Err(EntityError::Taken(_)) => drop(events.pop()),
            Err(error) => assert!(matches!(error, EntityError::Store(_)), "{error}"),
        }
    }
}

/// The kills of the acceptance: killed at any moment, including during the warm-up.
// Shows: ENT-14, ENT-16, ENT-22, ENT-24
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn memory_matches_the_repository_after_owners_are_killed() {
    let scene = CrashScene::new("entities", Durations::quick()).await;
    let entities = Entities::new(scene.queue.clone());
    let kills = size(6, 200);
    let mut dice = Dice(17);
    let (mut sent, mut replayed, mut compared, mut early) = (Vec::new(), 0, 0, 0);
    for kill in 0..kills {
        let epoch = i64::try_from(kill).unwrap() + 1;
        let owner = scene.start(&Role::Accounts { epoch, snapshot_every: 7 }, None);
        send(&entities, &mut dice, &mut sent).await;
        if dice.below(4) == 0 {
            // It may have nothing in memory yet.
            owner.says("accepted").await;
            early += 1;
        } else {
            let (memory, again) = memory(&owner).await;
            replayed += again;
            matches_its_folds(&scene, &memory, kill).await;
            compared += memory.len();
            send(&entities, &mut dice, &mut sent).await;
        }
        // The kill comes at a random moment.
        tokio::time::sleep(Duration::from_micros(dice.next() % 60_000)).await;
        owner.child.kill_9().await.unwrap();
    }
    let heir = scene.start(&Role::Accounts { epoch: i64::MAX - 1, snapshot_every: 7 }, None);
    memory(&heir).await;
    scene.until_at_least(DECIDED, i64::try_from(sent.len()).unwrap()).await;
    let last = scene.start(&Role::Accounts { epoch: i64::MAX, snapshot_every: 7 }, None);
    heir.child.kill_9().await.unwrap();
    let (memory, _) = memory(&last).await;
    assert_eq!(memory.len(), ACCOUNTS);
    matches_its_folds(&scene, &memory, kills).await;
    let versions = memory.values().map(|(version, _)| version).sum::<i64>();
    assert_eq!(scene.count(STORED).await, versions);
    told_once(&scene, sent.len()).await;
    assert!(entities.status(CanvasId::DEFAULT, Uuid::from_u64_pair(7, 0)).await.unwrap().is_some());
    figure("kills, of them before the memory was there", format!("{kills}, {early}"));
    figure("accounts compared with their folds", compared);
    figure("events sent, replayed", format!("{}, {replayed}", sent.len()));
}

/// Killed right after a commit, before the answer was announced and memory followed: the batch
/// counts, and once.
// Shows: ENT-24
#[tokio::test]
async fn an_owner_dies_right_after_a_commit() {
    let scene = CrashScene::new("committed", Durations::quick()).await;
    let entities = Entities::new(scene.queue.clone());
    let (mut dice, mut sent) = (Dice(3), Vec::new());
    send(&entities, &mut dice, &mut sent).await;
    let victim = scene.start(&Role::Accounts { epoch: 1, snapshot_every: 7 }, Some("entity.committed"));
    victim.child.ended().await;
    assert!(scene.count(DECIDED).await > 0, "what it committed stands");
    let heir = scene.start(&Role::Accounts { epoch: 2, snapshot_every: 7 }, None);
    heir.says("memory ").await;
    scene.until_at_least(DECIDED, i64::try_from(sent.len()).unwrap()).await;
    let last = scene.start(&Role::Accounts { epoch: 3, snapshot_every: 7 }, None);
    let (memory, _) = memory(&last).await;
    matches_its_folds(&scene, &memory, 1).await;
    told_once(&scene, sent.len()).await;
}

/// Every event has one result, that of the first time; results of repeated sends are marked as
/// such.
async fn told_once(scene: &CrashScene, sent: usize) {
    let sql = "select (value::json ->> 'event_id')::uuid, count(*) filter (where not (value::json ->> 'again')::boolean)
                 from wakeq.events_v2 where name = 'told' group by 1";
    let counts: Vec<(Uuid, i64)> = sqlx::query_as(sql).fetch_all(&scene.pool).await.unwrap();
    assert_eq!(counts.len(), sent, "no result is missing");
    assert!(counts.iter().all(|(_, count)| *count == 1), "none comes twice: {counts:?}");
    let twice = "select count(*) from (select id from wakeq.log where category = 'entities:account' group by id having count(*) > 1) as t";
    assert_eq!(scene.count(twice).await, 0, "no event is stored twice");
}
