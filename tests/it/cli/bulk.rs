//! Commands on more than one request covers, and on rows that others hold: what they print, and how
//! they end.

use wakeq::CanvasId;

use super::{Terminal, masked};
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

/// A terminal on the database, and one against a server with a key for every canvas.
pub(super) async fn terminals(service: &Service) -> [Terminal; 2] {
    [Terminal::beside(service), Terminal::wide(service).await]
}

/// Inserts this many waiting events of `greet`, and as many dead ones.
async fn fill(service: &Service, canvas: CanvasId, count: i32) {
    for sql in [
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
         select gen_random_uuid(), $1, 'WORKER', 'greet', '_', '1', now() from generate_series(1, $2)",
        "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                        last_error, cause)
         select gen_random_uuid(), $1, 'WORKER', 'greet', '_', '1', 2, now(), 3, 1, 'no room', 'retries'
           from generate_series(1, $2)",
    ] {
        sqlx::query(sql).bind(canvas.0).bind(count).execute(&service.stage.pool).await.unwrap();
    }
}

/// How many events of a canvas wait, and how many are dead.
async fn left(service: &Service, canvas: CanvasId) -> (i64, i64) {
    let sql = "select (select count(*) from wakeq.events_v2 where canvas_id = $1),
                      (select count(*) from wakeq.dead_events where canvas_id = $1)";
    sqlx::query_as(sql).bind(canvas.0).fetch_one(&service.stage.pool).await.unwrap()
}

async fn left_of_both(service: &Service) -> ((i64, i64), (i64, i64)) {
    (left(service, CanvasId::DEFAULT).await, left(service, OTHER).await)
}

/// A dry run counts everything that the command would do, even if that takes several requests.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_dry_run_counts_all_that_the_command_would_do() {
    let service = Service::start().await;
    fill(&service, CanvasId::DEFAULT, 10_002).await;
    fill(&service, OTHER, 3).await;
    let other = OTHER.to_string();
    for terminal in terminals(&service).await {
        for (count, canvas) in [("10002", &[][..]), ("3", &["--canvas", &other])] {
            for (line, expected) in [
                (&["purge", "greet"][..], format!("WORKER/greet: {count} events would be deleted")),
                (
                    &["dead", "redrive", "--handler", "greet"],
                    format!("{count} dead events would be brought back"),
                ),
                (&["dead", "delete", "--all"], format!("{count} dead events would be deleted")),
            ] {
                let printed = terminal.prints(&[line, &["--dry-run"], canvas].concat()).await;
                assert_eq!(printed, format!("{expected} (--before <time>)\n"));
            }
        }
    }
    assert_eq!(left_of_both(&service).await, ((10_002, 10_002), (3, 3)));
    let [database, _] = terminals(&service).await;
    assert_eq!(database.prints(&["purge", "greet"]).await, "WORKER/greet: 10002 events deleted\n");
    assert_eq!(left_of_both(&service).await, ((0, 10_002), (3, 3)));
    service.stop().await;
}

/// Rows that others hold are left: a command says exactly what it did and how to continue, and has
/// a separate exit code.
#[tokio::test]
async fn locked_rows_are_skipped_and_reported() {
    let service = Service::start().await;
    fill(&service, CanvasId::DEFAULT, 5).await;
    fill(&service, OTHER, 5).await;
    let mut held = service.stage.pool.begin().await.unwrap();
    for sql in [
        "select from wakeq.events_v2 where canvas_id = $1 limit 2 for update",
        "select from wakeq.dead_events where canvas_id = $1 limit 2 for update",
    ] {
        sqlx::query(sql).bind(CanvasId::DEFAULT.0).fetch_all(&mut *held).await.unwrap();
    }
    let [database, server] = terminals(&service).await;
    let (purge, delete) = (["purge", "greet"], ["dead", "delete", "--all"]);
    let (purged, deleted) = tokio::join!(database.run(&purge), server.run(&delete));
    let expected =
        "wakeq: the rest is locked by other transactions: repeat the command later (--before <time>)\n";
    for (printed, out) in [(purged, "WORKER/greet: 3 events deleted\n"), (deleted, "3 dead events deleted\n")]
    {
        assert_eq!((printed.code, printed.out.as_str()), (Some(5), out), "{}", printed.err);
        assert_eq!(masked(&printed.err), expected);
    }
    held.rollback().await.unwrap();
    assert_eq!(database.prints(&purge).await, "WORKER/greet: 2 events deleted\n");
    assert_eq!(server.prints(&delete).await, "2 dead events deleted\n");
    assert_eq!(left_of_both(&service).await, ((0, 0), (5, 5)));
    service.stop().await;
}

/// Everything that a group gave up is marked, however much it is; what another group gave up is
/// not.
#[tokio::test]
async fn all_that_a_group_gave_up_is_marked() {
    let service = Service::start().await;
    for (group, canvas, count) in
        [("one", CanvasId::DEFAULT, 20_003), ("two", OTHER, 20_000), ("other", OTHER, 3)]
    {
        let sql = "insert into wakeq.consumer_dead
                       (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error)
                   select $1, 'log', seq, gen_random_uuid(), $2, 'c', 's', 'n', '1', 1, 'no room' from generate_series(1, $3) seq";
        sqlx::query(sql).bind(group).bind(canvas.0).bind(count).execute(&service.stage.pool).await.unwrap();
    }
    let [database, server] = terminals(&service).await;
    let redrive = |group| ["groups", "redrive", group, "--all"];
    assert_eq!(database.prints(&redrive("one")).await, "20003 events will be retried\n");
    assert_eq!(server.prints(&redrive("two")).await, "20000 events will be retried\n");
    let sql = "select count(*) from wakeq.consumer_dead where redrive_at is not null";
    let marked: i64 = service.stage.pool.value(sql).await;
    assert_eq!(marked, 40_003, "another group's are not");
    service.stop().await;
}
