//! How entities are erased: page by page, by the owner of the type, however often owners change or
//! die; and by nothing else.

use sqlx::PgPool;
use wakeq::{Actor, CanvasId, EventId};
use wakeq_streams::{
    Entities, EntityConfig, EntityEvent, EntityId, EntityStatus, EventSubscriber, Health, SentToEntity,
};

use crate::streams::entities::{Bank, Change, OTHER, accept, account, config, deposit, of, withdraw};
use crate::support::child_processes::{Durations, Process, Role};
use crate::support::crash_scene::CrashScene;
use crate::support::{TIMEOUT, wait_while};

/// Rows of the log about ada on the canvas of the tests.
const ROWS: &str = "select count(*) from wakeq.log where stream = 'ada' and canvas_id = '00000000-0000-0000-0000-000000000000'";
const THEIRS: &str = "select count(*) from wakeq.log where stream = 'ada' and canvas_id = '00000000-0000-0000-0000-000000000007'";

fn theirs() -> EntityId {
    of(OTHER, "account", "ada")
}

/// Sends this many deposits to an entity.
async fn fill(entities: &Entities, entity: &EntityId, count: usize) -> EventId {
    let mut last = None;
    for from in (0..count).step_by(1000) {
        let events = vec![(entity.clone(), deposit(1)); count.min(from + 1000) - from];
        let sent = entities.send_all(events).await.unwrap();
        last = sent.last().map(|sent| sent.id);
    }
    last.unwrap()
}

async fn erase(entities: &Entities) -> SentToEntity {
    entities.erase(&account("ada"), None, &Actor::user("grace")).await.unwrap()
}

/// Calls the function as the owner of the tables.
async fn page(pool: &PgPool, entity: &EntityId, erasure: i64, most: i32) -> Result<bool, String> {
    let erase = sqlx::query_scalar("select wakeq.erase_entity($1, $2, $3, $4, 0, $5) is not null");
    let erase = erase.bind(entity.canvas.0).bind(entity.entity_type.as_str()).bind(entity.id.as_str());
    erase.bind(erasure).bind(most).fetch_one(pool).await.map_err(|error| error.to_string())
}

/// A page has a bounded number of rows, and fewer if they are large; the entity is removed with the
/// first one. Whatever is not an erasure of exactly this entity erases nothing.
#[tokio::test]
async fn a_page_is_bounded_and_of_one_erasure() {
    let (bank, processor) = Bank::owned().await;
    let pool = &bank.stage.pool;
    let last = fill(&bank.entities, &account("ada"), 1200).await;
    let other = fill(&bank.entities, &theirs(), 10).await;
    bank.ended(last.0).await;
    bank.ended_on(OTHER, other.0).await;
    withdraw(&processor).await;
    let erasure = erase(&bank.entities).await.link.id;
    for (entity, seq) in [
        (theirs(), erasure),
        (account("bob"), erasure),
        (of(CanvasId::DEFAULT, "invoice", "ada"), erasure),
        (account("ada"), erasure - 1),
        (account("ada"), erasure + 1),
    ] {
        let refused = page(pool, &entity, seq, 1000).await.unwrap_err();
        assert!(refused.contains("does not erase"), "{refused}");
    }
    for most in [0, 1001] {
        assert!(page(pool, &account("ada"), erasure, most).await.unwrap_err().contains("1 to 1,000"));
    }
    assert_eq!((bank.count(ROWS).await, bank.count(THEIRS).await), (2401, 20));
    assert_eq!(page(pool, &account("ada"), erasure, 7).await, Ok(true));
    assert_eq!(bank.count(ROWS).await, 2394);
    assert!(bank.entities.show(&account("ada")).await.unwrap().is_none());
    for (more, left) in [(true, 1394), (true, 394), (false, 1), (false, 1)] {
        assert_eq!(page(pool, &account("ada"), erasure, 1000).await, Ok(more));
        assert_eq!(bank.count(ROWS).await, left);
    }
    assert_eq!(bank.count(THEIRS).await, 20);
    accept(&processor, 2).await;
    assert_eq!(bank.deposited("ada", 1).await.version, Some(1));
    // It is done, and the entity has continued.
    assert_eq!(page(pool, &account("ada"), erasure, 1000).await, Ok(false));
    assert_eq!(bank.shown("ada").await.map(|(_, version)| version), Some(1));
    // Large rows: at most 4 MiB per page.
    let large = EntityEvent::new("deposit", &"x".repeat(200_000)).unwrap();
    let sent = bank.entities.send_all(vec![(account("ada"), large); 30]).await.unwrap();
    bank.ended(sent.last().unwrap().id.0).await;
    withdraw(&processor).await;
    let erasure = erase(&bank.entities).await.link.id;
    assert_eq!(page(pool, &account("ada"), erasure, 1000).await, Ok(true));
    assert!(bank.count(ROWS).await > 10);
}

/// The log refuses every other deletion, even in the transaction of an erasure, and even by a role
/// that claims to erase but is not the owner; it refuses the owner any update.
// Shows: SUB-X5
#[tokio::test]
async fn only_an_erasure_can_delete_from_the_log() {
    let bank = Bank::open().await;
    let pool = &bank.stage.pool;
    bank.deposit("ada", 1).await;
    bank.entities.send(&theirs(), EntityEvent::of(&Change::Report).unwrap()).await.unwrap();
    let erasure = erase(&bank.entities).await.link.id;
    let mut transaction = pool.begin().await.unwrap();
    let erase = "select wakeq.erase_entity($1, 'account', 'ada', $2, 0, 1000) is not null";
    let erase = sqlx::query_scalar(erase).bind(CanvasId::DEFAULT.0).bind(erasure);
    let done: bool = erase.fetch_one(&mut *transaction).await.unwrap();
    assert!(!done);
    let refused =
        sqlx::raw_sql("delete from wakeq.log").execute(&mut *transaction).await.unwrap_err().to_string();
    assert!(refused.contains("the log is never changed"), "{refused}");
    transaction.rollback().await.unwrap();
    for change in
        ["update wakeq.log set name = 'x'", "truncate wakeq.log", "update wakeq.log_0 set name = 'x'"]
    {
        let sql = format!("set wakeq.erases = 'an entity'; {change}");
        let mut connection = pool.acquire().await.unwrap();
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *connection).await.unwrap_err();
        assert!(refused.to_string().contains("the log is never changed"), "{change}: {refused}");
        sqlx::raw_sql("reset wakeq.erases").execute(&mut *connection).await.unwrap();
    }
    // A role with the right to delete that is not the owner.
    let sql = "grant usage on schema wakeq to pg_monitor; grant select, delete on wakeq.log to pg_monitor";
    sqlx::raw_sql(sql).execute(pool).await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    let sql = "set role pg_monitor; set wakeq.erases = 'an entity'; delete from wakeq.log";
    let refused = sqlx::raw_sql(sql).execute(&mut *connection).await.unwrap_err().to_string();
    assert!(refused.contains("the log is never changed"), "{refused}");
    sqlx::raw_sql("reset role; reset wakeq.erases").execute(&mut *connection).await.unwrap();
    assert_eq!((bank.count(ROWS).await, bank.count(THEIRS).await), (2, 1));
}

/// In memory or not, an erased entity is not loaded, and starts again as a new one.
#[tokio::test]
async fn an_entity_that_has_left_memory_is_erased_as_well() {
    let bank = Bank::open().await;
    let narrow = EntityConfig { memory_limit_bytes: 256 * 1024, ..config() };
    let processor = bank.owner(narrow, 1).await;
    bank.deposited("ada", 5).await;
    bank.sent_to(&theirs(), deposit(7)).await;
    for number in 0..40 {
        let note = EntityEvent::of(&Change::Note { bytes: 10_000 }).unwrap();
        bank.sent_to(&account(&format!("a{number}")), note).await;
    }
    let (entities, _) = processor.size().await;
    assert!(entities < 40, "some have left: {entities}");
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await.map(|(_, version)| version), Some(1));
    let erasure = erase(&bank.entities).await;
    assert_eq!(bank.ended(erasure.id.0).await.status, EntityStatus::Completed);
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await, None);
    assert_eq!(processor.state(OTHER, "ada").await.map(|(balance, _)| balance.cents), Some(7));
    assert_eq!(bank.deposited("ada", 1).await.version, Some(1));
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await.map(|(balance, _)| balance.cents), Some(1));
}

/// An owner that is replaced before its first page erases nothing, and its successor erases
/// everything; both stay healthy.
#[tokio::test]
async fn an_owner_that_was_replaced_erases_nothing_more() {
    let (bank, deposed) = Bank::owned().await;
    let last = fill(&bank.entities, &account("ada"), 1500).await;
    fill(&bank.entities, &theirs(), 5).await;
    bank.ended(last.0).await;
    // The first page waits for this lock, and is tried again.
    let mut lock = bank.stage.pool.begin().await.unwrap();
    let row = "select from wakeq.entities where id = 'ada' and canvas_id = '00000000-0000-0000-0000-000000000000' for update";
    sqlx::query(row).execute(&mut *lock).await.unwrap();
    let erasure = erase(&bank.entities).await;
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    wait_while!(bank.count(waits).await == 0, "the first page waits");
    let heir = bank.processor(config());
    heir.accept(heir.entity_type().source(), 2);
    let opened = "select count(*) from wakeq.consumer_positions where epoch = 2";
    wait_while!(bank.count(opened).await == 0, "the position is another's");
    lock.rollback().await.unwrap();
    tokio::time::timeout(TIMEOUT, heir.ready()).await.expect("it has its entities in memory");
    assert_eq!(bank.ended(erasure.id.0).await.status, EntityStatus::Completed);
    assert_eq!((bank.count(ROWS).await, bank.count(THEIRS).await), (1, 10));
    assert_eq!(bank.deposited("ada", 2).await.version, Some(1));
    assert_eq!(bank.shown("ada").await.map(|(balance, _)| balance.cents), Some(2));
    for processor in [&deposed, &heir] {
        assert_eq!(*processor.health().borrow(), Health::Healthy);
    }
    assert_eq!(heir.state(OTHER, "ada").await.map(|(balance, _)| balance.cents), Some(5));
}

/// A processor that reads while its successor erases finds that rows are missing and that it no
/// longer owns the type: that is not a defect, and it stays healthy.
#[tokio::test]
async fn a_warm_up_beside_an_erasure_is_no_defect() {
    let bank = Bank::open().await;
    let rare = || EntityConfig { snapshot_every: 1000, ..config() };
    let first = bank.owner(rare(), 1).await;
    let last = fill(&bank.entities, &account("ada"), 5).await;
    bank.ended(last.0).await;
    withdraw(&first).await;
    // The entities can't be read until the entity is half erased and another owner has the inbox.
    let mut lock = bank.stage.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table wakeq.entities in access exclusive mode").execute(&mut *lock).await.unwrap();
    let late = bank.processor(rare());
    late.accept(late.entity_type().source(), 2);
    let owned = "select count(*) from wakeq.entity_owners where epoch = 2 and is_open";
    wait_while!(bank.count(owned).await == 0, "it owns the type");
    let sql = "update wakeq.consumer_positions set epoch = 3;
               set local wakeq.erases = 'an entity';
               delete from wakeq.log where category = 'entities:account' and position = 2";
    sqlx::raw_sql(sql).execute(&mut *lock).await.unwrap();
    lock.commit().await.unwrap();
    let left = "select count(*) from wakeq.entity_owners where not is_open";
    wait_while!(bank.count(left).await == 0, "it ends");
    assert_eq!((late.is_ready(), late.health().borrow().clone()), (false, Health::Healthy));
}

/// Killed after a page, and right after the last commit: the next owner finishes it, and it counts
/// once.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_owner_dies_between_the_pages_of_an_erasure() {
    let scene = CrashScene::new("erased", Durations::quick()).await;
    let entities = Entities::new(scene.queue.clone());
    let own = |epoch, fault| scene.start(&Role::Accounts { epoch, snapshot_every: 7 }, fault);
    let decided =
        "select count(*) from wakeq.entity_events where status <> 'accepted' and name <> 'wakeq.erase'";
    let done = "select count(*) from wakeq.entity_events where status = 'processed' and name = 'wakeq.erase'";
    let ready = async |owner: &Process| drop(owner.says("memory ").await);
    let mut owner = own(1, None);
    fill(&entities, &account("ada"), 2500).await;
    fill(&entities, &theirs(), 10).await;
    scene.until_at_least(decided, 2510).await;
    owner.child.kill_9().await.unwrap();
    let first = erase(&entities).await;
    for epoch in [2, 3] {
        let victim = own(epoch, Some("entity.erased"));
        victim.child.ended().await;
        let left = scene.count(ROWS).await;
        assert_eq!(left, 5001 - 1000 * (epoch - 1), "a page for each life");
        let status = entities.status(CanvasId::DEFAULT, first.id.0).await.unwrap().unwrap().status;
        assert_eq!(status, EntityStatus::Accepted, "it is not done before all is gone");
        assert!(entities.show(&account("ada")).await.unwrap().is_none());
    }
    owner = own(4, None);
    ready(&owner).await;
    scene.until_at_least(done, 1).await;
    assert_eq!((scene.count(ROWS).await, scene.count(THEIRS).await), (1, 20));
    owner.child.kill_9().await.unwrap();
    // A new entity, erased by an owner that dies before it has the answer to its commit.
    fill(&entities, &account("ada"), 3).await;
    owner = own(5, None);
    scene.until_at_least(decided, 13).await;
    owner.child.kill_9().await.unwrap();
    erase(&entities).await;
    own(6, Some("entity.committed")).child.ended().await;
    assert_eq!(scene.count(done).await, 2);
    fill(&entities, &account("ada"), 2).await;
    owner = own(7, None);
    ready(&owner).await;
    scene.until_at_least(decided, 12).await;
    let ada = entities.show(&account("ada")).await.unwrap().unwrap();
    assert_eq!(ada.version, 2, "nothing that came after it is gone");
    assert_eq!(entities.show(&theirs()).await.unwrap().unwrap().version, 10);
}
