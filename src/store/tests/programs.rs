//! The rows of programs that lease events: each canvas has its own, silent ones make room, and only
//! so many are noted.

use std::time::Duration;

use super::crowds::{FEW, MANY};
use super::{Table, tester};
use crate::event::{CanvasId, HandlerScope, PullPolicy};
use crate::store::{ExpiryPart, Retention};

fn mail(canvas: CanvasId) -> HandlerScope {
    HandlerScope::worker(canvas, "mail").unwrap()
}

impl Table {
    async fn sees(&self, canvas: CanvasId, worker: &str) {
        self.store.see_program(&mail(canvas), &worker.parse().unwrap()).await.unwrap();
    }

    async fn programs_of(&self, canvas: CanvasId) -> Vec<String> {
        let programs = self.store.programs(canvas, None, 2_000).await.unwrap();
        assert!(programs.iter().all(|program| program.scope == mail(canvas)), "{programs:?}");
        programs.into_iter().map(|program| program.worker.to_string()).collect()
    }

    /// The programs of a canvas have given no sign for this long more.
    async fn silence(&self, canvas: CanvasId, minutes: i32) {
        let shift = "update wakeq.programs set seen_at = seen_at - make_interval(mins => $2),
                            since = since - make_interval(mins => $2) where canvas_id = $1";
        sqlx::query(shift).bind(canvas.0).bind(minutes).execute(&self.pool).await.unwrap();
    }
}

/// It is listed for five minutes, and its time begins anew if it comes back later.
#[tokio::test]
async fn a_program_is_shown_while_it_is_seen() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.sees(canvas, "one").await;
    }
    table.sees(MANY, "two").await;
    assert_eq!(table.programs_of(MANY).await, ["one", "two"]);
    assert_eq!(table.programs_of(FEW).await, ["one"]);
    let after = ("WORKER".parse().unwrap(), "mail".parse().unwrap(), "one".parse().unwrap());
    let rest = table.store.programs(MANY, Some(&after), 10).await.unwrap();
    assert_eq!(rest.len(), 1, "{rest:?}");

    table.silence(MANY, 4).await;
    table.sees(MANY, "one").await;
    let seen = table.store.programs(MANY, None, 1).await.unwrap().remove(0);
    assert!((seen.seen_at - seen.since).num_minutes() == 4, "{seen:?}");
    table.silence(MANY, 2).await;
    assert_eq!(table.programs_of(MANY).await, ["one"], "the other has been silent for six minutes");
    table.sees(MANY, "two").await;
    let again = table.store.programs(MANY, Some(&after), 1).await.unwrap().remove(0);
    assert_eq!(again.seen_at, again.since);
    assert_eq!(table.programs_of(FEW).await, ["one"]);
}

/// Those that are silent leave when another one comes.
#[tokio::test]
async fn a_bounded_number_of_programs_of_a_canvas_is_noted() {
    let table = Table::new().await;
    let add = "insert into wakeq.programs (canvas_id, module, name, worker)
               select $1, 'WORKER', 'mail', 'w-' || n from generate_series(1, 1000) n";
    sqlx::query(add).bind(MANY.0).execute(&table.pool).await.unwrap();
    table.sees(MANY, "late").await;
    assert_eq!(table.programs_of(MANY).await.len(), 1_000, "there is no room for it");
    table.sees(MANY, "w-7").await;
    table.sees(FEW, "late").await;
    assert_eq!(table.programs_of(FEW).await, ["late"]);

    table.silence(MANY, 6).await;
    table.silence(FEW, 6).await;
    table.sees(MANY, "w-7").await;
    assert_eq!(table.number("select count(*) from wakeq.programs").await, 1_001, "it has a row");
    table.sees(MANY, "late").await;
    assert_eq!(table.programs_of(MANY).await, ["late", "w-7"]);
    assert_eq!(table.number("select count(*) from wakeq.programs").await, 3, "and that of another canvas");
}

#[tokio::test]
async fn the_rows_of_silent_programs_are_deleted_after_an_hour() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.sees(canvas, "one").await;
    }
    table.silence(MANY, 61).await;
    table.silence(FEW, 59).await;
    assert!(!table.store.expire(ExpiryPart::Programs, Retention::default()).await.unwrap());
    let left =
        "select array_agg(canvas_id)::text = '{00000000-0000-0000-0000-000000000007}' from wakeq.programs";
    assert!(table.holds(left).await);
}

/// While its lease stands; and that of a program without a name bears none.
#[tokio::test]
async fn an_event_that_a_program_has_leased_bears_its_name() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        let put = table.store.put_pulled(&mail(canvas), &PullPolicy::default(), &tester()).await;
        assert!(put.unwrap().unwrap().new);
        let add = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
                   values (gen_random_uuid(), $1, 'WORKER', 'mail', '_', '1')";
        sqlx::query(add).bind(canvas.0).execute(&table.pool).await.unwrap();
    }
    let minute = Duration::from_secs(60);
    let named = table.store.clone().claiming_as("mailer-7".parse().unwrap());
    let leased = named.lease_events(&mail(MANY), 1, minute, 1_000, None).await.unwrap().rows.remove(0);
    let theirs = table.store.lease_events(&mail(FEW), 1, minute, 1_000, None).await.unwrap().rows.remove(0);
    let loaded = table.store.load(&[leased.event.claim.id, theirs.event.claim.id]).await.unwrap();
    let workers = loaded.iter().flatten().map(|event| (event.was_leased, event.worker.clone()));
    let expected = [(true, Some("mailer-7".parse().unwrap())), (true, None)];
    assert_eq!(workers.collect::<Vec<_>>(), expected);
    assert_eq!(table.store.release(&[leased.event.claim]).await.unwrap(), 1);
    assert_eq!(table.number("select count(worker) from wakeq.events_v2").await, 0);
}
