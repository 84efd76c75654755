//! What is in memory: built from the repository, kept while the type is owned, by the same actors,
//! within a limit.

use std::sync::{Arc, Barrier, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wakeq::log::{AppendCondition, NewLogEvent, StreamId};
use wakeq::{Actor, CanvasId, Stop};
use wakeq_streams::{
    Applied, Entity, EntityConfig, EntityEvent, EntityProcessor, EntityStatus, EventSubscriber, Rejection,
};

use super::{Account, Balance, Bank, Change, accept, account, config, unhealthy, withdraw};
use crate::support::spy_log::SpyLog;

/// Where two entities meet that are applied at the same time.
static MEETING: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

/// Returns once another entity is being applied as well.
pub(super) fn meet() {
    MEETING.wait();
}

/// Memory is authoritative; no state is read from the database while the type is owned.
// Shows: ENT-02, ENT-15, ENT-18
#[tokio::test]
async fn the_state_is_in_memory() {
    let (bank, processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    bank.stage.execute("update wakeq.entities set state = '{\"cents\": 1000, \"changes\": 1}'").await;
    assert_eq!(bank.deposited("ada", 2).await.result.as_deref(), Some("3"));
    assert_eq!(processor.state(CanvasId::DEFAULT, "bob").await, None);
    let (entities, bytes) = processor.size().await;
    assert!(entities == 1 && (256..1024).contains(&bytes), "{bytes}");
}

/// What stops every event does not stop entities, which read the log.
#[tokio::test]
async fn entities_go_on_while_everything_is_blocked() {
    let (bank, _processor) = Bank::owned().await;
    let (ops, none) = (Actor::admin("ops"), Stop::default());
    bank.stage.admin.block_all(&ops, &none).await.unwrap();
    bank.stage.admin.pause_canvas(CanvasId::DEFAULT, &ops, &none).await.unwrap();
    assert_eq!(bank.deposited("ada", 2).await.result.as_deref(), Some("2"));
}

/// Entities of different actors are applied in parallel; an entity has the same actor in every
/// processor with the same number of actors.
// Shows: ENT-04, ENT-10, ENT-25
#[tokio::test]
async fn different_entities_are_applied_side_by_side() {
    let (bank, processor) = Bank::owned().await;
    let other = bank.processor(config());
    let names: Vec<String> = (0..100).map(|number| format!("account-{number}")).collect();
    let actor = |name: &String| processor.actor_of(CanvasId::DEFAULT, name).unwrap();
    for name in &names {
        assert_eq!(Some(actor(name)), other.actor_of(CanvasId::DEFAULT, name), "{name}");
    }
    let used: std::collections::BTreeSet<_> = names.iter().map(actor).collect();
    assert_eq!(used, (0..4).collect());
    let one = &names[0];
    let beside = names.iter().find(|name| actor(name) != actor(one)).unwrap();
    let event = |name: &str| (account(name), EntityEvent::of(&Change::Meet).unwrap());
    // In one batch: neither can finish without the other.
    let sent = bank.entities.send_all(vec![event(one), event(beside)]).await.unwrap();
    for sent in sent {
        assert_eq!(bank.ended(sent.id.0).await.status, EntityStatus::Completed);
    }
}

/// ENT-22: after a start, memory is as it was, built from snapshots and the events after them, and
/// no effect outside is repeated.
// Shows: ENT-05, ENT-16, ENT-17, ENT-19, ENT-23
#[tokio::test]
async fn after_a_start_the_state_is_what_it_was() {
    let bank = Bank::open().await;
    let rare = EntityConfig { snapshot_every: 10, ..config() };
    let processor = bank.owner(rare.clone(), 1).await;
    for _ in 0..13 {
        bank.deposited("ada", 1).await;
    }
    bank.sent_to(&account("bob"), EntityEvent::of(&Change::Report).unwrap()).await;
    let states = async |processor: &EntityProcessor<Account>| {
        [processor.state(CanvasId::DEFAULT, "ada").await, processor.state(CanvasId::DEFAULT, "bob").await]
    };
    let before = states(&processor).await;
    assert_eq!(before[0].as_ref().map(|(balance, version)| (balance.cents, *version)), Some((13, 13)));
    // Readers see the snapshot and its version.
    let shown = bank.entities.show(&account("ada")).await.unwrap().unwrap();
    assert_eq!((shown.version, shown.state_version), (13, 10));
    let emitted = bank.stage.rows().await;
    withdraw(&processor).await;
    assert_eq!(processor.size().await.0, 0, "nothing is kept of a type that is not owned");
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await, None);
    let heir = bank.processor(rare);
    assert_eq!(accept(&heir, 2).await, (2, 3 + 1), "three after the snapshot, and one without");
    assert_eq!(states(&heir).await, before);
    assert_eq!(bank.stage.rows().await, emitted, "a replay emits nothing");
    // It continues from there.
    assert_eq!(bank.deposited("ada", 1).await.version, Some(14));
}

/// A snapshot that the program can't read, or that has another shape, is rebuilt from the first
/// event on.
// Shows: ENT-19
#[tokio::test]
async fn a_snapshot_that_does_not_fit_is_made_again() {
    let (bank, processor) = Bank::owned().await;
    for name in ["ada", "bob", "cyd"] {
        for _ in 0..4 {
            bank.deposited(name, 2).await;
        }
    }
    withdraw(&processor).await;
    for sql in [
        "update wakeq.entities set state = '[]' where id = 'ada'",
        "update wakeq.entities set shape = 7 where id = 'bob'",
    ] {
        bank.stage.execute(sql).await;
    }
    assert_eq!(accept(&processor, 2).await, (3, 8));
    for name in ["ada", "bob", "cyd"] {
        let (balance, version) = processor.state(CanvasId::DEFAULT, name).await.unwrap();
        assert_eq!((balance.cents, version), (8, 4), "{name}");
    }
}

/// The repository belongs to the processor: events that something else appends are noticed at the
/// next event or the next start.
// Shows: ENT-11
#[tokio::test]
async fn foreign_appends_to_the_repository_are_detected() {
    let (bank, processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    // Possible only in the database itself.
    for sql in [
        "insert into wakeq.log select (jsonb_populate_record(l, jsonb_build_object(
             'seq', nextval('wakeq.log_seq'), 'id', gen_random_uuid(), 'position', 1, 'prev', l.seq))).*
           from wakeq.log l where category = 'entities:account'",
        "update wakeq.log_streams set position = 1, last_seq = (select max(seq) from wakeq.log where category = 'entities:account')
          where category = 'entities:account'",
    ] {
        bank.stage.execute(sql).await;
    }
    bank.deposit("ada", 1).await;
    let why = unhealthy(&processor).await;
    assert!(why.contains("the repository of account/ada was appended to"), "{why}");
    assert_eq!(bank.cents().await, Some((1, 1)));
    let heir = bank.processor(config());
    heir.accept(heir.entity_type().source(), 2);
    let why = unhealthy(&heir).await;
    assert!(why.contains("the repository has 2 events") && why.contains("and 1 were stored"), "{why}");
}

/// Any caller that may append to the log may name a category after a type: it is not the
/// processor's.
#[tokio::test]
async fn categories_with_the_name_of_a_type_are_no_repositories() {
    let (bank, processor) = Bank::owned().await;
    for category in ["account", "account.inbox"] {
        let event = NewLogEvent::new("deposit", &serde_json::json!({ "cents": 1000 })).unwrap();
        let stream = StreamId::new(CanvasId::DEFAULT, category, "ada").unwrap();
        bank.log.append(&stream, vec![event], AppendCondition::None).await.unwrap();
    }
    assert_eq!(bank.deposited("ada", 1).await.result.as_deref(), Some("1"));
    withdraw(&processor).await;
    assert_eq!(accept(&processor, 2).await, (1, 0));
}

/// An owner that panics becomes unhealthy instead of silently remaining the owner.
#[tokio::test]
async fn an_owner_that_panics_says_so() {
    let bank = Bank::open().await;
    let log = SpyLog::new(Arc::new(bank.log.clone()), |_| panic!("the provider was told to"));
    let processor = EntityProcessor::<Account>::new(bank.stage.queue.clone(), log, config()).unwrap();
    processor.accept(processor.entity_type().source(), 1);
    assert!(unhealthy(&processor).await.contains("was cut short"));
    assert!(!processor.is_ready());
}

/// A program that can no longer apply an event in the repository.
struct Strict;

impl Entity for Strict {
    const TYPE: &'static str = "account";
    const SHAPE: u32 = 2;
    type State = Balance;
    type Event = Narrow;

    fn validate(_: &Balance, _: &Narrow) -> Result<(), Rejection> {
        Ok(())
    }

    fn apply(balance: Balance, _: &Narrow) -> Applied<Balance> {
        Applied::new(balance)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Narrow {
    Deposited,
}

/// A program that can't read what is stored owns nothing, reports why, and can be told to try
/// again.
#[tokio::test]
async fn a_program_that_can_not_replay_says_so() {
    let (bank, processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    withdraw(&processor).await;
    let strict = bank.processor_of::<Strict>(config());
    strict.accept(strict.entity_type().source(), 2);
    let why = unhealthy(&strict).await;
    assert!(why.contains("account/ada can no longer be applied") && why.contains("deposit"), "{why}");
    strict.recover();
    assert!(!unhealthy(&strict).await.is_empty());
    withdraw(&strict).await;
    assert_eq!(accept(&processor, 3).await, (1, 0));
}

/// An invalid configuration is refused.
#[tokio::test]
async fn a_configuration_has_limits() {
    let bank = Bank::open().await;
    for (config, part) in [
        (EntityConfig { actors: 0, ..config() }, "actors"),
        (EntityConfig { batch: 1001, ..config() }, "batch"),
        (EntityConfig { snapshot_every: 0, ..config() }, "snapshot_every"),
        (EntityConfig { attempts: 0, ..config() }, "attempts"),
        (EntityConfig { state_limit_bytes: 0, ..config() }, "state_limit_bytes"),
        (EntityConfig { poll_interval: Duration::ZERO, ..config() }, "poll_interval"),
    ] {
        let log = Arc::new(bank.log.clone());
        let refused = EntityProcessor::<Account>::new(bank.stage.queue.clone(), log, config);
        let words = refused.err().expect("it is refused").to_string();
        assert!(words.contains(part), "{words}");
    }
}
