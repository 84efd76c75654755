//! When memory is full, the least recently used entities leave it, of the canvas that takes the
//! most, and come back unchanged.

use wakeq::CanvasId;
use wakeq_streams::{EntityConfig, EntityEvent, EntityStatus, EventSubscriber, Health};

use super::{Balance, Bank, Change, accept, config, deposit, of, withdraw};

const ATTACKER: CanvasId = CanvasId(uuid::Uuid::from_u128(1));
const VICTIM: CanvasId = CanvasId(uuid::Uuid::from_u128(2));
const LIMIT: usize = 1024 * 1024;

fn narrow(snapshot_every: u32) -> EntityConfig {
    EntityConfig { memory_limit_bytes: LIMIT, snapshot_every, ..config() }
}

impl Bank {
    async fn all(&self, canvas: CanvasId, numbers: std::ops::Range<usize>, change: &Change) {
        let entity = |number| of(canvas, "account", &format!("a{number}"));
        let event = |number| (entity(number), EntityEvent::of(change).unwrap());
        for sent in self.entities.send_all(numbers.map(event).collect()).await.unwrap() {
            let ended = self.ended_on(canvas, sent.id.0).await;
            assert_eq!(ended.status, EntityStatus::Completed, "{ended:?}");
        }
    }
}

fn balance(cents: i64, changes: u64, note: usize) -> Balance {
    Balance { cents, changes, note: "x".repeat(note) }
}

/// One canvas keeps creating entities and makes them grow; another one has a few, and creates some.
async fn one_canvas_fills_memory(snapshot_every: u32) {
    let bank = Bank::open().await;
    let processor = bank.owner(narrow(snapshot_every), 1).await;
    let deposit = Change::Deposit { cents: 1 };
    bank.all(VICTIM, 0..20, &deposit).await;
    for from in [0, 100, 200] {
        bank.all(ATTACKER, from..from + 100, &Change::Note { bytes: 10_000 }).await;
        let (_, bytes) = processor.size().await;
        assert!(bytes <= LIMIT, "{bytes}");
    }
    bank.all(ATTACKER, 0..10, &Change::Note { bytes: 200_000 }).await;
    let (entities, bytes) = processor.size().await;
    assert!(bytes <= LIMIT && entities < 120, "{entities} entities of 320, {bytes} bytes");
    // The other canvas's entities are unchanged, and it can create new ones.
    bank.all(VICTIM, 0..40, &deposit).await;
    // Evicted entities come back unchanged, and continue.
    bank.all(ATTACKER, 10..300, &deposit).await;
    // From memory, or rebuilt from what is stored.
    for number in 0..300 {
        let state = processor.state(ATTACKER, &format!("a{number}")).await;
        let expected = if number < 10 { balance(0, 2, 200_000) } else { balance(1, 2, 10_000) };
        assert_eq!(state, Some((expected, 2)), "{number}");
    }
    assert_eq!(processor.state(ATTACKER, "never").await, None);
    withdraw(&processor).await;
    // A start loads what fits, in whatever order.
    let heir = bank.processor(narrow(snapshot_every));
    let (entities, _) = accept(&heir, 2).await;
    assert!(entities < 320, "{entities}");
    assert_eq!(*heir.health().borrow(), Health::Healthy);
    bank.all(VICTIM, 20..60, &deposit).await;
    bank.all(ATTACKER, 0..10, &deposit).await;
    for number in 0..60 {
        let cents = if (20..40).contains(&number) || number < 20 { 2 } else { 1 };
        let state = heir.state(VICTIM, &format!("a{number}")).await;
        assert_eq!(state, Some((balance(cents, cents.unsigned_abs(), 0), cents)), "{number}");
    }
    assert!(heir.size().await.1 <= LIMIT);
    let versions = "select count(*) from wakeq.entities where version = 3 and canvas_id = '00000000-0000-0000-0000-000000000001'";
    assert_eq!(bank.count(versions).await, 10);
}

// Shows: ENT-05
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn one_canvas_does_not_push_out_another() {
    one_canvas_fills_memory(1).await;
}

/// Entities are rebuilt from a snapshot and the events after it.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn evicted_entities_are_rebuilt_from_snapshot_and_events() {
    one_canvas_fills_memory(2).await;
}

/// Foreign appends to the repository of an entity that is not in memory are noticed when it is
/// loaded.
#[tokio::test]
async fn foreign_appends_to_evicted_entities_are_detected() {
    let bank = Bank::open().await;
    let processor = bank.owner(EntityConfig { memory_limit_bytes: 0, ..config() }, 1).await;
    bank.all(VICTIM, 0..1, &Change::Deposit { cents: 1 }).await;
    assert_eq!(processor.size().await, (0, 0), "nothing fits");
    bank.all(VICTIM, 0..1, &Change::Deposit { cents: 1 }).await;
    bank.stage.execute("update wakeq.entities set version = 1, state_version = 1").await;
    bank.entities.send(&of(VICTIM, "account", "a0"), deposit(1)).await.unwrap();
    let why = super::unhealthy(&processor).await;
    assert!(why.contains("the repository has 2 events") && why.contains("and 1 were stored"), "{why}");
}
