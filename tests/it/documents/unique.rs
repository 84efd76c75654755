//! The SQL in docs/unique.md: events with unique keys are emitted in a transaction, by a role with
//! the documented rights.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;
use wakeq::events::Unique;
use wakeq::machine::Outcome;
use wakeq::{Event, EventId, Handlers};

use crate::support::{OTHER, Stage, login};

const DOCUMENT: &str = include_str!("../../../docs/unique.md");

/// The two blocks of SQL: a transaction, and the rights.
fn blocks() -> (&'static str, &'static str) {
    let blocks: Vec<_> =
        DOCUMENT.split("\n```sql\n").skip(1).map(|rest| rest.split("\n```").next()).collect();
    let [Some(transaction), Some(rights)] = blocks[..] else { panic!("{blocks:?}") };
    (transaction, rights)
}

/// A login with the documented rights and no others, and the stage whose tables it emits into.
struct Shop {
    stage: Stage,
    session: PgConnection,
}

impl Shop {
    async fn open() -> Self {
        let (stage, _) = Stage::memory().await;
        let (role, url) = login(&stage.database, "shop").await;
        let rights =
            blocks().1.replace("to shop;", &format!("to {role};")).replace("'shop'", &format!("'{role}'"));
        let invoices = format!(
            "create table invoices (id bigint primary key, cents bigint); insert into invoices values (42, 0);
             grant select, update on invoices to {role};"
        );
        sqlx::raw_sql(AssertSqlSafe(rights + &invoices)).execute(&stage.pool).await.unwrap();
        Self { stage, session: PgConnection::connect(&url).await.unwrap() }
    }

    async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.session).await.map(drop)
    }

    /// Emits with these arguments; returns which event stands, and what was done.
    async fn emit(&mut self, arguments: &str) -> (EventId, String) {
        let sql = format!("select event_id, outcome from wakeq.emit_unique({arguments})");
        let answer = sqlx::query_as::<_, (Uuid, String)>(AssertSqlSafe(sql));
        let (id, outcome) = answer.fetch_one(&mut self.session).await.unwrap();
        (EventId(id), outcome)
    }

    /// Emits with these arguments, which is refused; returns the reason and the advice.
    async fn refused(&mut self, arguments: &str) -> String {
        let sql = format!("select wakeq.emit_unique({arguments})");
        let error = self.run(&sql).await.expect_err(&sql);
        let hint = error.as_database_error().and_then(|error| {
            error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|error| error.hint())
        });
        format!("{error}: {}", hint.unwrap_or_default())
    }
}

#[tokio::test]
async fn events_with_keys_are_emitted_by_plain_sql() {
    let mut shop = Shop::open().await;
    let theirs = Event::new("recompute", &1).unwrap().canvas(OTHER);
    let theirs = theirs.unique(Unique::key("invoice:42").unwrap()).unwrap();
    let theirs = shop.stage.queue.emit(theirs).await.unwrap().id;
    shop.run(&blocks().0.replace("commit;", "rollback;")).await.unwrap();
    assert_eq!(shop.stage.rows().await, 1, "what was rolled back");
    for _ in 0..3 {
        shop.run(blocks().0).await.unwrap();
    }
    assert_eq!((shop.stage.rows().await, shop.stage.count("select cents from invoices").await), (3, 300));
    let postpone =
        "'index', '42', 'document:42', on_conflict => 'postpone', postpone_by => '1 h', at_most => '2 h'";
    assert_eq!(shop.emit(postpone).await.1, "postponed");
    let is_later = "select count(*) from wakeq.events_v2
                     where name = 'index' and delay_until > enqueued_at + interval '50 min'";
    assert_eq!(shop.stage.count(is_later).await, 1);
    let (standing, outcome) = shop.emit("'recompute', '43', 'invoice:42', on_conflict => 'replace'").await;
    assert_eq!(outcome, "replaced");

    let handlers = Handlers::new().on("recompute", |_| async { Ok(()) });
    let mut worker = shop.stage.worker(handlers);
    shop.stage.admin.wake(true).await.unwrap();
    let reports = worker.until_count(2, Outcome::Deleted).await;
    let ended = |id: EventId| reports.iter().any(|report| report.notification.id == id);
    assert!(ended(standing) && ended(theirs), "{reports:?}");
    worker.stop().await;
    let (next, outcome) = shop.emit("'recompute', '44', 'invoice:42', remember => '1 hour'").await;
    assert_eq!(outcome, "inserted");
    shop.stage.execute("delete from wakeq.events_v2").await;
    assert_eq!(shop.emit("'recompute', '45', 'invoice:42'").await, (next, "kept".to_owned()));
}

#[tokio::test]
async fn a_key_or_a_canvas_that_is_not_the_roles_is_refused() {
    let mut shop = Shop::open().await;
    for (arguments, why) in [
        ("'recompute', '1', 'a b'", "1 to 255 visible ASCII characters"),
        ("'recompute', '1', ''", "1 to 255 visible ASCII characters"),
        ("'recompute', '1', null", "call wakeq.emit"),
        ("'recompute', '1', 'k', until => 'soon'", "started or ended"),
        ("'recompute', '1', 'k', until => 'started', remember => '1 hour'", "after its event has ended"),
        ("'recompute', '1', 'k', remember => '367 days'", "up to 366 days"),
        ("'recompute', '1', 'k', on_conflict => 'drop'", "keep, replace or postpone"),
        ("'recompute', '1', 'k', on_conflict => 'postpone'", "the longest wait"),
        ("'recompute', '1', 'k', postpone_by => '5 s', at_most => '1 min'", "or none"),
        (
            "'recompute', '1', 'k', on_conflict => 'postpone', postpone_by => '5 s', at_most => '4 s'",
            "the longest wait",
        ),
        ("'recompute', 'no JSON', 'k'", "json"),
        ("'recompute', '1', 'k', module => 'CRON'", "reserved"),
    ] {
        let refused = shop.refused(arguments).await;
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
    let theirs = format!("'recompute', '1', 'k', canvas => '{OTHER}'");
    let refused = shop.refused(&theirs).await;
    assert!(refused.contains("may not emit"), "{refused}");
    assert_eq!(shop.stage.rows().await, 0);
    assert_eq!(shop.emit("'recompute', '1', 'k'").await.1, "inserted");
}
