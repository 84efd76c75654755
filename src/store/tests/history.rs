//! The history: attempts are noted by the statements that end them, ended events are kept as long
//! as was asked for, and whole partitions go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queues::canvas;
use super::{Table, tester};
use crate::event::{
    CanvasId, Cause, Claim, EndedFilter, EndedOutcome, EventId, HandlerScope, Keep, PullPolicy,
};
use crate::store::{AttemptEnd, CommandOutcome, KeptEnd, NotedRetry, Retry, complete_in};

const TOOK: Duration = Duration::from_millis(1500);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn retry(claim: Claim, retries: i32, is_postponed: bool) -> Arc<Retry> {
    let noted = Some(NotedRetry { took: TOOK, is_postponed });
    Arc::new(Retry { claim, retries, delay: Duration::ZERO, error: "no route".into(), noted })
}

/// How many events fail in a round of measuring, and how often. The first hundred attempts at an
/// event are noted, and each is tried once a round for both sizes of a statement.
const FAILING: usize = 100;
const ROUNDS: usize = 40;

fn kept(claim: Claim, keep: Duration, error: Option<&str>, result: Option<&str>) -> Arc<KeptEnd> {
    let (error, result) = (error.map(ToOwned::to_owned), result.map(ToOwned::to_owned));
    Arc::new(KeptEnd { claim, end: AttemptEnd { took: Some(TOOK), keep, error, result } })
}

impl Table {
    /// Puts an attempt of years ago there that can't be deleted, and removes tomorrow's partition.
    pub(crate) async fn hold_up_old_attempts(&self) {
        self
            .run(
                "insert into wakeq.attempts (canvas_id, event_id, day, number, nonce, outcome, started_at, took_us)
                 values (gen_random_uuid(), gen_random_uuid(), '2020-01-01', 1, 1, 'retried', now(), 1)",
            )
            .await;
        self
            .run(
                "create function public.take_long() returns trigger language plpgsql as $$
                 begin raise query_canceled using message = 'canceling statement due to statement timeout'; end $$",
            )
            .await;
        self.run(
            "create trigger take_long before delete on wakeq.attempts_rest
                 for each row execute function public.take_long()",
        )
        .await;
        self.run(
            "do $$ begin
                     execute 'drop table wakeq.attempts_'
                         || to_char(now() at time zone 'UTC' + interval '1 day', 'YYYYMMDD');
                 end $$",
        )
        .await;
    }

    /// Adds attempts at one event.
    pub(crate) async fn add_attempts(&self, canvas: CanvasId, count: i32) {
        let add =
            "insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, started_at, took_us)
                   select $1, $1, n, 1, 'retried', now(), 1 from generate_series(1, $2) n";
        sqlx::query(add).bind(canvas.0).bind(count).execute(&self.pool).await.unwrap();
    }

    /// How many attempts of a canvas have rows.
    pub(crate) async fn attempts_of(&self, canvas: CanvasId) -> i64 {
        let count = "select count(*) from wakeq.attempts where canvas_id = $1";
        sqlx::query_scalar(count).bind(canvas.0).fetch_one(&self.pool).await.unwrap()
    }

    async fn outcomes(&self, canvas: CanvasId, id: EventId) -> Vec<(u32, String)> {
        let attempts = self.store.attempts(canvas, id).await.unwrap();
        attempts.into_iter().map(|attempt| (attempt.number, attempt.outcome)).collect()
    }

    /// Claims events, and saves that their attempts have failed.
    async fn fail(&self, ids: &[EventId], retries: i32, noted: Option<NotedRetry>) {
        let retry = |claim| {
            let error = "no route to the mail server".to_owned();
            Arc::new(Retry { claim, retries, delay: Duration::ZERO, error, noted })
        };
        let failed: Vec<_> = self.claim(ids).await.into_iter().map(retry).collect();
        let saved = self.store.retry(&failed).await.unwrap();
        assert!(saved.iter().all(|saved| *saved), "its claim stands");
    }

    async fn ended(&self, filter: &EndedFilter) -> Vec<EventId> {
        let found = self.store.search_ended(filter, None, (100, 100), true).await.unwrap();
        found.into_iter().filter(|found| found.is_meant).map(|found| found.event.id).collect()
    }

    /// What their emits ask for.
    async fn ask_to_keep(&self, options: &'static str) {
        let asked = "update wakeq.events_v2 set options = $1::text::jsonb";
        sqlx::query(asked).bind(options).execute(&self.pool).await.unwrap();
    }
}

#[tokio::test]
async fn retries_postponements_and_deaths_are_noted() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let claim = table.claim(&ids).await[0];
    assert_eq!(table.store.retry(&[retry(claim, 1, false)]).await.unwrap(), [true]);
    assert_eq!(table.store.retry(&[retry(claim, 1, false)]).await.unwrap(), [false], "its claim is gone");
    let claim = table.claim(&ids).await[0];
    assert_eq!(table.store.retry(&[retry(claim, 1, true)]).await.unwrap(), [true]);
    let claim = table.claim(&ids).await[0];
    assert!(table.store.die(claim, Cause::Retries, Some("enough"), false, Some(TOOK)).await.unwrap());
    let expected = [(1, "retried".to_owned()), (2, "postponed".to_owned()), (3, "dead".to_owned())];
    assert_eq!(table.outcomes(CanvasId::DEFAULT, ids[0]).await, expected);
    assert_eq!(table.outcomes(canvas(7), ids[0]).await, [], "another tenant sees nothing");
    let attempts = table.store.attempts(CanvasId::DEFAULT, ids[0]).await.unwrap();
    assert_eq!(
        (attempts[0].error.as_deref(), attempts[2].error.as_deref()),
        (Some("no route"), Some("enough"))
    );
    assert_eq!(attempts[0].took, TOOK);
}

/// What nobody keeps leaves nothing, and what is not to be noted is not.
#[tokio::test]
async fn a_plain_completion_writes_nothing() {
    let table = Table::new().await;
    let claims = table.claim(&table.add(2).await).await;
    assert_eq!(table.store.complete(&claims[..1]).await.unwrap(), [true]);
    assert_eq!(
        table.store.complete_kept(&[kept(claims[1], Duration::ZERO, None, None)]).await.unwrap(),
        [true]
    );
    let written = "select (select count(*) from wakeq.attempts) + (select count(*) from wakeq.ended_events)";
    assert_eq!((table.number(written).await, table.left().await), (0, 0));
}

#[tokio::test]
async fn an_ended_event_is_kept_with_its_result_and_its_attempts() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    let claims = table.claim(&ids).await;
    table.store.retry(&[retry(claims[0], 1, false)]).await.unwrap();
    let again = table.claim(&ids[..1]).await[0];
    let foreign = Claim { nonce: claims[1].nonce ^ 1, ..claims[1] };
    assert_eq!(table.store.complete_kept(&[kept(foreign, DAY, None, None)]).await.unwrap(), [false]);
    let ends =
        [kept(again, DAY, None, Some("{\"ok\":true}")), kept(claims[1], DAY, Some("no address"), None)];
    assert_eq!(table.store.complete_kept(&ends).await.unwrap(), [true, true]);
    assert_eq!(table.store.complete_kept(&ends).await.unwrap(), [false, false]);

    let ended = table.store.ended_event(CanvasId::DEFAULT, ids[0]).await.unwrap().unwrap();
    assert_eq!((ended.outcome, ended.claims, ended.has_result), (EndedOutcome::Completed, 2, true));
    assert_eq!((ended.kept_until - ended.ended_at).to_std().unwrap(), DAY);
    assert_eq!(ended.ran.unwrap().1, TOOK);
    table.run("truncate wakeq.attempts").await;
    assert_eq!(
        table.outcomes(CanvasId::DEFAULT, ids[0]).await,
        [(1, "retried".to_owned())],
        "it has them itself"
    );
    let value = table.store.ended_value(CanvasId::DEFAULT, ids[0]).await.unwrap().unwrap();
    assert_eq!(value.1.as_deref(), Some("{\"ok\":true}"));

    let failed = table.store.ended_event(CanvasId::DEFAULT, ids[1]).await.unwrap().unwrap();
    assert_eq!((failed.outcome, failed.error.as_deref()), (EndedOutcome::Failed, Some("no address")));
    let all = EndedFilter::default();
    assert_eq!(table.ended(&all).await.len(), 2);
    let only = EndedFilter { outcome: Some(EndedOutcome::Failed), ..all.clone() };
    assert_eq!(table.ended(&only).await, [ids[1]]);
    let scope = Some(failed.address.scope.clone());
    assert_eq!(table.ended(&EndedFilter { scope, ..only }).await, [ids[1]]);

    let other = EndedFilter { canvas: canvas(7), ..all };
    assert_eq!(table.ended(&other).await, [], "another tenant sees nothing");
    assert_eq!(table.store.ended_event(canvas(7), ids[0]).await.unwrap(), None);
    assert_eq!(table.store.ended_value(canvas(7), ids[0]).await.unwrap(), None);
}

/// The emit's wish takes the place of the handler's, also if it wants nothing to be kept.
#[tokio::test]
async fn an_emit_decides_how_long_its_event_is_kept() {
    for (options, handler, kept_s) in [
        ("{\"keep_s\": 60.0}", Duration::ZERO, Some(60)),
        ("{\"keep_s\": 60.0}", DAY, Some(60)),
        ("{\"keep_s\": 0}", DAY, None),
        ("{\"keep_s\": {\"completed\": 60}}", DAY, Some(60)),
        ("{\"keep_s\": {\"failed\": 60, \"cancelled\": 60}}", DAY, None),
        // Too small for a double.
        ("{\"keep_s\": 1e-400}", DAY, None),
        ("{\"keep_s\": {\"completed\": 1e-400}}", DAY, None),
        ("{\"retries\": 1}", DAY, Some(86_400)),
    ] {
        let table = Table::new().await;
        let ids = table.add(1).await;
        table.ask_to_keep(options).await;
        let claim = table.claim(&ids).await[0];
        assert_eq!(table.store.complete_kept(&[kept(claim, handler, None, None)]).await.unwrap(), [true]);
        let ended = table.store.ended_event(CanvasId::DEFAULT, ids[0]).await.unwrap();
        let found = ended.map(|event| (event.kept_until - event.ended_at).num_seconds());
        assert_eq!(found, kept_s, "{options}");
    }
}

#[tokio::test]
async fn cancelled_events_are_kept_as_their_emits_ask() {
    let table = Table::new().await;
    let ids = table.add(3).await;
    table.ask_to_keep("{\"keep_s\": 60.0}").await;
    let (outcome, _) = table.store.cancel(CanvasId::DEFAULT, ids[0], &tester()).await.unwrap();
    assert_eq!(outcome, CommandOutcome::Done);
    let claims = table.claim(&ids[1..]).await;
    table.mark_cancelled().await;
    assert!(table.store.remove_cancelled(claims[0], &AttemptEnd::default()).await.unwrap());
    table.store.release(&claims[1..]).await.unwrap();
    assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap().0, 1);
    for (id, by) in ids.into_iter().zip(["test", "ada", "ada"]) {
        let ended = table.store.ended_event(CanvasId::DEFAULT, id).await.unwrap().unwrap();
        assert_eq!((ended.outcome, ended.ended_by.as_deref()), (EndedOutcome::Cancelled, Some(by)));
    }
}

/// Plain SQL may ask for a time that is too small for a double. That stops no removal, on no
/// canvas.
#[tokio::test]
async fn the_smallest_time_holds_up_no_other_canvas() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    table.run("update wakeq.events_v2 set options = wakeq.kept_options('{\"keep_s\": 1e-400}')").await;
    let theirs = "update wakeq.events_v2 set canvas_id = $1, options = '{\"keep_s\": 60}' where id = $2";
    sqlx::query(theirs).bind(canvas(7).0).bind(ids[1].0).execute(&table.pool).await.unwrap();
    let claims = table.claim(&ids[..1]).await;
    table.mark_cancelled().await;
    table.store.release(&claims).await.unwrap();
    assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap().0, 2);
    assert_eq!(table.store.ended_event(CanvasId::DEFAULT, ids[0]).await.unwrap(), None);
    assert!(table.store.ended_event(canvas(7), ids[1]).await.unwrap().is_some());
}

/// Whoever completes an event by SQL may have a time zone in which 90 days have an hour less.
#[tokio::test]
async fn the_longest_time_is_the_same_in_every_time_zone() {
    let table = Table::new().await;
    let claim = table.claim(&table.add(1).await).await[0];
    assert_eq!(table.store.complete_kept(&[kept(claim, DAY, None, None)]).await.unwrap(), [true]);
    let mut session = table.pool.begin().await.unwrap();
    sqlx::query("set local timezone = 'Europe/Berlin'").execute(&mut *session).await.unwrap();
    let moved =
        "update wakeq.ended_events set ended_at = '2027-03-01 00:00Z', kept_until = '2027-05-30 00:00Z'";
    assert_eq!(sqlx::query(moved).execute(&mut *session).await.unwrap().rows_affected(), 1);
}

#[tokio::test]
async fn plain_sql_asks_for_a_time_or_for_one_by_outcome() {
    let table = Table::new().await;
    for (options, is_good) in [
        ("0", true),
        ("7776000", true),
        ("{}", true),
        ("{\"completed\": 0.5, \"failed\": 0, \"cancelled\": 7776000}", true),
        ("7776001", false),
        ("-1", false),
        ("\"60\"", false),
        ("[60]", false),
        ("{\"dead\": 60}", false),
        ("{\"failed\": -1}", false),
        ("{\"failed\": \"60\"}", false),
        ("{\"failed\": null}", false),
    ] {
        let kept = sqlx::query("select wakeq.kept_options(jsonb_build_object('keep_s', $1::text::jsonb))");
        assert_eq!(kept.bind(options).execute(&table.pool).await.is_ok(), is_good, "{options}");
    }
}

/// A target, or a pulled handler, keeps the events of its own canvas that are cancelled while they
/// wait, if it keeps those. A handler that is pulled has no use for a target.
#[tokio::test]
async fn a_pulled_handler_keeps_events_of_its_own_canvas_alone() {
    let cancelled = Duration::from_secs(60);
    for (keep, is_kept) in [
        (Keep { cancelled, ..Keep::default() }, true),
        (Keep { completed: DAY, failed: DAY, ..Keep::default() }, false),
        (Keep::default(), false),
    ] {
        let table = Table::new().await;
        let ids = table.add(2).await;
        let moved = "update wakeq.events_v2 set canvas_id = $1 where id = $2";
        sqlx::query(moved).bind(canvas(7).0).bind(ids[1].0).execute(&table.pool).await.unwrap();
        table.run(KEEPS).await;
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "known").unwrap();
        let policy = PullPolicy { keep, ..PullPolicy::default() };
        assert!(table.store.put_pulled(&scope, &policy, &tester()).await.unwrap().unwrap().new);
        assert_eq!(table.store.pulled_policy(&scope).await.unwrap(), Some(policy));
        for (of, id) in [(CanvasId::DEFAULT, ids[0]), (canvas(7), ids[1])] {
            table.store.cancel(of, id, &tester()).await.unwrap();
            let kept = table.store.ended_event(of, id).await.unwrap();
            assert_eq!(kept.is_some(), of == CanvasId::DEFAULT && is_kept, "{keep:?}");
        }
    }
}

/// A target that keeps what is cancelled.
const KEEPS: &str =
    "insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms,
                                     timeout_ms, secret, created_by, updated_by, keep_s)
     values ('00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', 'https://example.com', 1, 1000, 2, 10000,
             1000, sha256('1'), 'test', 'test', '{0,0,60}')";

/// A target keeps the events of its own canvas that are cancelled while they wait.
#[tokio::test]
async fn a_target_keeps_events_of_its_own_canvas_alone() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    let moved = "update wakeq.events_v2 set canvas_id = $1 where id = $2";
    sqlx::query(moved).bind(canvas(7).0).bind(ids[1].0).execute(&table.pool).await.unwrap();
    table.run(KEEPS).await;
    for (of, id) in [(CanvasId::DEFAULT, ids[0]), (canvas(7), ids[1])] {
        table.store.cancel(of, id, &tester()).await.unwrap();
        let kept = table.store.ended_event(of, id).await.unwrap();
        assert_eq!(kept.is_some(), of == CanvasId::DEFAULT);
    }
}

/// An event whose time is over is hidden at once; its partition goes when its week is over.
/// Attempts go by days.
#[tokio::test]
async fn what_is_no_longer_kept_is_hidden_and_goes_with_its_partition() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let claim = table.claim(&ids).await[0];
    table.store.complete_kept(&[kept(claim, DAY, None, None)]).await.unwrap();
    table
        .run(
            "create table wakeq.attempts_20200101 partition of wakeq.attempts
                 for values from ('2020-01-01') to ('2020-01-02')",
        )
        .await;
    table
        .run(
            "create table wakeq.ended_events_20200106 partition of wakeq.ended_events
                 for values from ('2020-01-06') to ('2020-01-13')",
        )
        .await;
    table
        .run(
            "update wakeq.ended_events
                set ended_at = '2020-01-06', enqueued_at = '2020-01-06', kept_until = '2020-01-07',
                    started_at = '2020-01-06'",
        )
        .await;
    table
        .run(
            "insert into wakeq.attempts (canvas_id, event_id, day, number, nonce, outcome, started_at, took_us)
             values (gen_random_uuid(), gen_random_uuid(), '2020-01-01', 1, 1, 'retried', now(), 1)",
        )
        .await;
    assert_eq!(table.number("select count(*) from wakeq.ended_events_20200106").await, 1);
    assert_eq!(table.store.ended_event(CanvasId::DEFAULT, ids[0]).await.unwrap(), None);
    let dropped = async || table.store.drop_history_partition(7 * DAY).await.unwrap();
    assert_eq!(dropped().await.as_deref(), Some("attempts_20200101"));
    assert_eq!(dropped().await.as_deref(), Some("ended_events_20200106"));
    assert_eq!(dropped().await, None);
    table.store.add_history_partitions().await.unwrap();
    assert_eq!(table.store.add_history_partitions().await.unwrap(), 0, "they are there");
}

/// What comes while there is no partition for it goes to the rest, and from there when it is old.
#[tokio::test]
async fn nothing_fails_for_want_of_a_partition() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.attempts (canvas_id, event_id, day, number, nonce, outcome, started_at, took_us)
             select gen_random_uuid(), gen_random_uuid(), current_date + n, 1, 1, 'retried', now(), 1
               from unnest(array[-30, 30]) n",
        )
        .await;
    let rest = "select count(*) from wakeq.attempts_rest";
    assert_eq!(table.number(rest).await, 2);
    assert_eq!(table.store.drop_history_partition(7 * DAY).await.unwrap(), None);
    assert_eq!(table.number(rest).await, 1);
}

/// A caller's transaction may have kept an event, and stay open.
#[tokio::test]
async fn partitions_are_made_beside_open_transactions() {
    let table = Table::new().await;
    let claim = table.claim(&table.add(1).await).await[0];
    table
        .run(
            "do $$ begin
                 execute 'drop table wakeq.attempts_'
                     || to_char(now() at time zone 'UTC' + interval '1 day', 'YYYYMMDD');
                 execute 'drop table wakeq.ended_events_'
                     || to_char(date_trunc('week', now() at time zone 'UTC') + interval '91 days', 'YYYYMMDD');
             end $$",
        )
        .await;
    let mut open = table.pool.begin().await.unwrap();
    assert!(complete_in(&mut open, claim, None, DAY).await.unwrap());
    assert!(table.store.add_history_partitions().await.unwrap() >= 2);
    open.commit().await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.ended_events").await, 1);
}

/// However much came to the rest, a statement deletes a page of it.
#[tokio::test]
async fn the_rest_is_deleted_by_pages() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.attempts (canvas_id, event_id, day, number, nonce, outcome, started_at, took_us)
             select gen_random_uuid(), gen_random_uuid(), current_date - 30, 1, 1, 'retried', now(), 1
               from generate_series(1, 10001)",
        )
        .await;
    let dropped = async || table.store.drop_history_partition(7 * DAY).await.unwrap();
    assert_eq!(dropped().await.as_deref(), Some("attempts_rest"));
    assert_eq!(table.number("select count(*) from wakeq.attempts_rest").await, 1);
    assert_eq!(dropped().await, None);
    assert_eq!(table.number("select count(*) from wakeq.attempts_rest").await, 0);
}

/// An event that is tried for days does not fill the table.
#[tokio::test]
async fn attempts_are_thinned_out() {
    let table = Table::new().await;
    let noted = "select count(*) from generate_series(1, 10000) n where wakeq.is_noted(n)";
    assert_eq!(table.number(noted).await, 100 + 90 + 90);
}

/// A failed attempt is a claim and a retry, whose statement also notes it. Both ways are measured
/// in turns, alone and as many in a statement as under load. The quickest rounds are compared,
/// since whatever else a machine does makes some of them slower.
#[tokio::test]
#[ignore = "measures for a minute: `cargo xtask chaos` runs it"]
async fn a_noted_attempt_costs_at_most_a_third_more() {
    let table = Table::new().await;
    let ids = table.add(2 * FAILING as i32).await;
    let (plain, noted) = ids.split_at(FAILING);
    for together in [1, FAILING] {
        let mut took = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for turn in 0..2 {
                // Neither is always the first.
                let is_noted = (round + turn) % 2 == 1;
                let note = is_noted.then_some(NotedRetry { took: TOOK, is_postponed: false });
                let began = Instant::now();
                for page in (if is_noted { noted } else { plain }).chunks(together) {
                    table.fail(page, 1, note).await;
                }
                took[usize::from(is_noted)].push(began.elapsed());
            }
        }
        let [plain_us, noted_us] =
            took.map(|rounds| rounds.iter().min().unwrap().as_secs_f64() * 1e6 / FAILING as f64);
        let ratio = noted_us / plain_us;
        println!(
            "    a failed attempt, {together} in a statement: {noted_us:.0} µs, not noted {plain_us:.0} µs: {ratio:.2} times"
        );
        assert!(ratio <= 1.3, "{ratio:.2} times");
    }
    let written = i64::try_from(2 * ROUNDS * FAILING).unwrap();
    assert_eq!(table.number("select count(*) from wakeq.attempts").await, written);
}
