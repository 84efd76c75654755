//! The SQL in docs/finish.md: an event is completed in a transaction, by a role with the documented
//! rights.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;
use wakeq::testing::MemoryNotifier;
use wakeq::{CanvasId, Event, Handlers};

use crate::support::{Stage, Statements, login};

const DOCUMENT: &str = include_str!("../../../docs/finish.md");
/// The claim in the document.
const CLAIM: &str = "0000000137ab6c1c";
/// Another canvas than the role's.
const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));

/// The two blocks of SQL: a transaction, and the rights.
fn blocks() -> (&'static str, &'static str) {
    let blocks: Vec<_> =
        DOCUMENT.split("\n```sql\n").skip(1).map(|rest| rest.split("\n```").next()).collect();
    let [Some(transaction), Some(rights)] = blocks[..] else { panic!("{blocks:?}") };
    (transaction, rights)
}

async fn run(session: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(session).await.map(drop)
}

/// A claim of every event, as workers make it.
async fn claim_all(stage: &Stage) {
    let claim =
        "update wakeq.events_v2 set locked_at = clock_timestamp(), claims = 1, nonce = x'37ab6c1c'::integer";
    stage.pool.run(claim).await;
}

async fn scene() -> (Stage, std::sync::Arc<MemoryNotifier>, PgConnection) {
    let (stage, notifier) = Stage::memory().await;
    let (role, url) = login(&stage.database, "shop").await;
    let rights =
        blocks().1.replace("to shop;", &format!("to {role};")).replace("'shop'", &format!("'{role}'"));
    let orders = format!("create table orders (id bigint primary key); grant insert on orders to {role};");
    sqlx::raw_sql(AssertSqlSafe(rights + &orders)).execute(&stage.pool).await.unwrap();
    (stage, notifier, PgConnection::connect(&url).await.unwrap())
}

#[tokio::test]
async fn an_event_is_completed_in_a_transaction_of_plain_sql() {
    let (stage, _, mut session) = scene().await;
    let id = stage.emit("greet").await;
    claim_all(&stage).await;
    let transaction = blocks().0.replace("01890a5d-ac96-774b-bcce-b302099a8057", &id.to_string());
    run(&mut session, &transaction.replace("commit;", "rollback;")).await.unwrap();
    assert_eq!((stage.rows().await, stage.count("select count(*) from orders").await), (1, 0));
    run(&mut session, &transaction).await.unwrap();
    assert_eq!((stage.rows().await, stage.count("select count(*) from orders").await), (0, 1));
    let again = run(&mut session, &transaction.replace("(43)", "(44)")).await.unwrap_err();
    assert_eq!(again.as_database_error().unwrap().code().as_deref(), Some("55000"), "{again}");
    run(&mut session, "rollback").await.unwrap();
    assert_eq!(stage.count("select count(*) from orders").await, 1);
}

/// Neither a wrong claim nor the event of another canvas is told from an event that has ended.
#[tokio::test]
async fn only_the_holder_of_a_claim_completes_and_only_on_its_canvas() {
    let (stage, _, mut session) = scene().await;
    let own = stage.emit("greet").await;
    let theirs = Event::new("greet", &1).unwrap().canvas(OTHER);
    let theirs = stage.queue.emit(theirs).await.unwrap().id;
    let mut refused = async |id: String, claim: &str, why: &str| {
        let sql = format!("select wakeq.complete('{id}', '{claim}')");
        let error = run(&mut session, &sql).await.expect_err(&sql).to_string();
        assert!(error.contains(why), "{sql}: {error}");
    };
    let gone = "does not stand";
    refused(own.to_string(), CLAIM, gone).await;
    claim_all(&stage).await;
    refused(theirs.to_string(), CLAIM, gone).await;
    refused(Uuid::nil().to_string(), CLAIM, gone).await;
    refused(own.to_string(), "0000000137ab6c1d", gone).await;
    refused(own.to_string(), "0000000237ab6c1c", gone).await;
    for claim in ["", "0000000137ab6c1", "0000000137AB6C1C", "0000000137ab6c1g", "000000000000000037ab6c1c"] {
        refused(own.to_string(), claim, "not the claim of an attempt").await;
    }
    stage.pool.run("update wakeq.events_v2 set locked_at = null").await;
    refused(own.to_string(), CLAIM, gone).await;
    assert_eq!(stage.rows().await, 2);
    claim_all(&stage).await;
    // A lease begins with the claim.
    let lease = format!("select wakeq.complete('{own}', '{CLAIM}3f1d2a0b9e8f7a6b5c4d3e2f')");
    run(&mut session, &lease).await.unwrap();
    assert_eq!(stage.rows().await, 1, "that of the other canvas");
}

/// The next event of the object is promised in the same commit.
#[tokio::test]
async fn the_next_event_of_an_object_is_promised() {
    let (stage, _, mut session) = scene().await;
    let events = (0..2).map(|number| Event::new("greet", &number).unwrap().on("work:1").unwrap());
    let emitted = stage.queue.emit_all(events.collect()).await.unwrap();
    claim_all(&stage).await;
    stage.pool.run("update wakeq.events_v2 set notify_at = now() + interval '1 hour'").await;
    run(&mut session, &format!("select wakeq.complete('{}', '{CLAIM}')", emitted[0].id)).await.unwrap();
    let promised = "select count(*) from wakeq.events_v2 where notify_at < now() + interval '1 minute'";
    assert_eq!((stage.rows().await, stage.count(promised).await), (1, 1));
    stage.pool.run("update wakeq.events_v2 set locked_at = null").await;
    let mut worker = stage.worker(Handlers::new().on("greet", |_| async { Ok(()) }));
    stage.admin.wake(true).await.unwrap();
    worker.until(emitted[1].id, wakeq::machine::Outcome::HandedOver).await;
    worker.stop().await;
}
