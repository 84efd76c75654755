//! The SQL in docs/checkpoints.md: a checkpoint is stored in a transaction, by a role with the
//! documented rights.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use wakeq::testing::MemoryNotifier;
use wakeq::{CanvasId, Event};

use crate::support::{OTHER, Stage, Statements, login};

const DOCUMENT: &str = include_str!("../../../docs/checkpoints.md");
/// The event and the claim in the document.
const EVENT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const CLAIM: &str = "0000000137ab6c1c";

/// The two blocks of SQL: a transaction with a look after it, and the rights.
fn blocks() -> (&'static str, &'static str) {
    let blocks: Vec<_> =
        DOCUMENT.split("\n```sql\n").skip(1).map(|rest| rest.split("\n```").next()).collect();
    let [Some(transaction), Some(rights)] = blocks[..] else { panic!("{blocks:?}") };
    (transaction, rights)
}

async fn run(session: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(session).await.map(drop)
}

/// A stage, and a session of a role with the documented rights. An attempt of every event runs that
/// is emitted before [`claim_all`].
async fn scene() -> (Stage, std::sync::Arc<MemoryNotifier>, PgConnection) {
    let (stage, notifier) = Stage::memory().await;
    let (role, url) = login(&stage.database, "shop").await;
    let rights =
        blocks().1.replace("to shop;", &format!("to {role};")).replace("'shop'", &format!("'{role}'"));
    let pages = format!("create table pages (number bigint primary key); grant insert on pages to {role};");
    sqlx::raw_sql(AssertSqlSafe(rights + &pages)).execute(&stage.pool).await.unwrap();
    (stage, notifier, PgConnection::connect(&url).await.unwrap())
}

async fn claim_all(stage: &Stage) {
    let claim =
        "update wakeq.events_v2 set locked_at = clock_timestamp(), claims = 1, nonce = x'37ab6c1c'::integer";
    stage.pool.run(claim).await;
}

#[tokio::test]
async fn a_checkpoint_is_stored_in_a_transaction_of_plain_sql() {
    let (stage, _, mut session) = scene().await;
    let id = stage.emit("greet").await;
    claim_all(&stage).await;
    let transaction = blocks().0.replace(EVENT, &id.to_string());
    run(&mut session, &transaction.replace("commit;", "rollback;")).await.unwrap();
    let left = async || {
        let found = stage.admin.checkpoint(CanvasId::DEFAULT, id).await.unwrap();
        found.map(|checkpoint| checkpoint.json)
    };
    assert_eq!((left().await, stage.count("select count(*) from pages").await), (None, 0));
    run(&mut session, &transaction).await.unwrap();
    assert_eq!(left().await.as_deref(), Some(r#"{"page": 8}"#));
    assert_eq!(stage.count("select count(*) from pages").await, 1);
    let read = format!("select wakeq.last_checkpoint('{id}', '{CLAIM}')");
    let read: Option<String> = sqlx::query_scalar(AssertSqlSafe(read)).fetch_one(&mut session).await.unwrap();
    assert_eq!(read, left().await);
}

/// Neither a wrong claim nor the event of another canvas is told from an event that has ended.
#[tokio::test]
async fn only_the_holder_of_a_claim_stores_one_and_only_on_its_canvas() {
    let (stage, _, mut session) = scene().await;
    let own = stage.emit("greet").await;
    let theirs = Event::new("greet", &1).unwrap().canvas(OTHER);
    let theirs = stage.queue.emit(theirs).await.unwrap().id;
    let mut refused = async |event: &str, claim: &str, value: &str, why: &str| {
        for sql in [
            format!("select wakeq.checkpoint('{event}', '{claim}', {value})"),
            format!("select wakeq.last_checkpoint('{event}', '{claim}')"),
        ] {
            if value != "'1'" && sql.contains("last_checkpoint") {
                continue;
            }
            let error = run(&mut session, &sql).await.expect_err(&sql).to_string();
            assert!(error.contains(why), "{sql}: {error}");
        }
    };
    let (own, theirs, gone) = (own.to_string(), theirs.to_string(), "does not stand");
    refused(&own, CLAIM, "'1'", gone).await;
    claim_all(&stage).await;
    refused(&theirs, CLAIM, "'1'", gone).await;
    refused(EVENT, CLAIM, "'1'", gone).await;
    refused(&own, "0000000137ab6c1d", "'1'", gone).await;
    refused(&own, "0000000237ab6c1c", "'1'", gone).await;
    for claim in ["", "0000000137ab6c1", "0000000137AB6C1C", "000000000000000037ab6c1c"] {
        refused(&own, claim, "'1'", "not the claim of an attempt").await;
    }
    refused(&own, CLAIM, "'{'", "invalid input syntax for type json").await;
    refused(&own, CLAIM, "null", "at most 65,536 bytes").await;
    refused(&own, CLAIM, "to_json(repeat('x', 65535))::text", "at most 65,536 bytes").await;
    assert_eq!(stage.count("select count(*) from wakeq.checkpoints").await, 0);
    let lease = format!("select wakeq.checkpoint('{own}', '{CLAIM}3f1d2a0b9e8f7a6b5c4d3e2f', '1')");
    run(&mut session, &lease).await.unwrap();
    assert_eq!(
        stage.count("select count(*) from wakeq.checkpoints").await,
        1,
        "a lease begins with the claim"
    );
}
