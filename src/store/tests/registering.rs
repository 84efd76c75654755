//! Registering a target while events of its handler are deferred, in both orders: none of them
//! waits for its promise. Registering a queue again.

use sqlx::{Connection, PgConnection};

use super::parking::resume;
use super::queues::{EMAILS, emails, queue, register};
use super::{CanvasId, HandlerScope, Table, tester};
use crate::event::{HandlerAddress, Name, Secret, SecretKeys, TargetPolicy};
use crate::store::{FacetSettings, NewTargetRow, PutOutcome, QueuePut, Store};

async fn put(store: &Store, name: &str) -> PutOutcome {
    let scope = HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
    let address = HandlerAddress { scope, modifier: Name::no_modifier() };
    let (url, secret) = ("https://a.example/".parse().unwrap(), Secret::generate().unwrap());
    let (address, url, policy, actor) = (&address, &url, &TargetPolicy::default(), &tester());
    let keys = &"01".repeat(32).parse::<SecretKeys>().unwrap();
    let sealed = keys.seal(address, &secret).unwrap();
    let row = NewTargetRow {
        address,
        url,
        policy,
        audience: None,
        secret,
        sealed,
        keys,
        replaces_secret: false,
        actor,
    };
    store.put_target(&row).await.unwrap()
}

const PUT_OFF: &str = "select count(*) from wakeq.events_v2 where notify_at > now() + interval '4 min'";
const NOTES: &str = "select count(*) from wakeq.unknown_handlers";

/// The deferral has written the note of `new` and waits for that of `other` when `new` is
/// registered.
// Shows: TARGET-02
#[tokio::test]
async fn a_registration_waits_for_what_is_being_deferred_and_wakes_it() {
    let table = Table::new().await;
    let ids = [table.add_for(1, "new").await, table.add_for(1, "other").await].concat();
    let mut holder = PgConnection::connect(table.database.url()).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    let note = "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier) values ($1, 'WORKER', 'other', '_')";
    sqlx::query(note).bind(CanvasId::DEFAULT.0).execute(&mut *held).await.unwrap();
    let store = table.store.clone();
    let deferring = tokio::spawn(async move { store.defer(&ids).await });
    table.until_waiting(1).await;
    let store = table.store.clone();
    let putting = tokio::spawn(async move { put(&store, "new").await });
    table.until_waiting(2).await;
    held.rollback().await.unwrap();
    deferring.await.unwrap().unwrap();
    assert_eq!(table.number(PUT_OFF).await, 2);
    let job = putting.await.unwrap().job.expect("an event waits");
    assert_eq!(resume(&table.store, job).await.len(), 1);
    assert_eq!(
        (table.number(PUT_OFF).await, table.number(NOTES).await),
        (1, 1),
        "those of the other handler"
    );
}

/// The registration has begun when an event is deferred whose target was looked up before.
#[tokio::test]
async fn what_is_deferred_during_a_registration_is_due_at_once() {
    let table = Table::new().await;
    let ids = table.add_for(2, "new").await;
    let mut holder = PgConnection::connect(table.database.url()).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    let target = "insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor,
                      delay_max_ms, timeout_ms, secret, created_by, updated_by)
         values ($1, 'WORKER', 'new', '_', 'https://a.example/', 2, 0, 1, 0, 1000, decode(repeat('ab', 32), 'hex'), 'a', 'a')";
    sqlx::query(target).bind(CanvasId::DEFAULT.0).execute(&mut *held).await.unwrap();
    let store = table.store.clone();
    let putting = tokio::spawn(async move { put(&store, "new").await });
    table.until_waiting(1).await;
    let store = table.store.clone();
    let deferring = tokio::spawn(async move {
        store.defer(&ids).await?;
        store.wake_registered(&ids).await
    });
    table.until_waiting(2).await;
    held.rollback().await.unwrap();
    assert_eq!(putting.await.unwrap().job, None, "nothing waited yet");
    deferring.await.unwrap().unwrap();
    assert_eq!((table.number(PUT_OFF).await, table.number(NOTES).await), (0, 0));
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where notify_at <= now()").await, 2);
}

/// A canvas that invents handlers has 10,000 notes, and no more; what it has noted is refreshed,
/// its events are put off all the same, and other canvases have their own notes.
#[tokio::test]
async fn notes_of_unknown_handlers_are_bounded_on_each_canvas() {
    let table = Table::new().await;
    let mut ids = Vec::new();
    for name in ["new", "known", "theirs"] {
        ids.extend(table.add_for(1, name).await);
    }
    table
        .run(
            "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier, last_seen)
             select '00000000-0000-0000-0000-000000000000', 'WORKER', case n when 1 then 'known' else 'h' || n end, '_',
                    now() - interval '1 day'
               from generate_series(1, 10000) n",
        )
        .await;
    table
        .run("update wakeq.events_v2 set canvas_id = '00000000-0000-0000-0000-000000000007' where name = 'theirs'")
        .await;
    table.store.defer(&ids).await.unwrap();
    assert_eq!((table.number(PUT_OFF).await, table.number(NOTES).await), (3, 10_001));
    let recent = "select count(*) from wakeq.unknown_handlers
                   where name in ('known', 'theirs') and last_seen > now() - interval '1 hour'";
    assert_eq!(table.number(recent).await, 2);
}

/// Without a target, and while a rule or a claim stands, nothing is woken.
#[tokio::test]
async fn only_what_has_a_target_and_waits_is_woken() {
    let table = Table::new().await;
    let ids = [table.add_for(3, "new").await, table.add_for(1, "other").await].concat();
    table.store.defer(&ids).await.unwrap();
    table.store.wake_registered(&ids).await.unwrap();
    assert_eq!((table.number(PUT_OFF).await, table.number(NOTES).await), (4, 2));
    put(&table.store, "new").await;
    for (index, change) in ["notify_at = null", "locked_at = now(), claims = 1"].into_iter().enumerate() {
        let statement = format!("update wakeq.events_v2 set {change} where id = $1");
        let change = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(ids[index].0);
        change.execute(&table.pool).await.unwrap();
    }
    table.store.wake_registered(&ids).await.unwrap();
    assert_eq!(table.number(PUT_OFF).await, 2, "the claimed one and the other handler's");
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where notify_at is null").await, 1);
}

/// Registering the same again changes nothing; another list of patterns replaces the first.
// Shows: DRV-20, DRV-22
#[tokio::test]
async fn registering_a_queue_again_replaces_it() {
    let table = emails(FacetSettings::default()).await;
    assert_eq!(
        register(&table.store, EMAILS, &[".*:email_event:.*"], FacetSettings::default()).await,
        QueuePut::Replaced
    );
    assert_eq!(table.number("select count(*) from wakeq.queue_patterns").await, 1);
    register(&table.store, EMAILS, &["a", "b"], FacetSettings { weight: Some(5), in_flight_max: Some(9) })
        .await;
    let found = table.store.queues(Some(&queue(EMAILS))).await.unwrap().pop().unwrap();
    assert_eq!(found.patterns, ["a", "b"]);
    assert_eq!(found.facets, FacetSettings { weight: Some(5), in_flight_max: Some(9) });
    let names: Vec<String> = (0..100).map(|number| format!("q{number}")).collect();
    let mut puts = Vec::new();
    for name in &names {
        puts.push(register(&table.store, name, &["x"], FacetSettings::default()).await);
    }
    assert_eq!(puts.iter().filter(|put| **put == QueuePut::TooMany).count(), 1);
}
