//! Error groups in Postgres: that it groups as the library does, what is counted, how many errors
//! may be known, and that their marks go with age.

use uuid::Uuid;

use super::Table;
use super::cost::{buffers, plan};
use crate::event::{Actor, CanvasId, ErrorGroupId, EventFilter, HandlerScope, error_fingerprint};
use crate::store::{ErrorGroup, ErrorGroupsAsked, ExpiryPart, KnowOutcome, Retention};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));

const ALL: ErrorGroupsAsked<'_> =
    ErrorGroupsAsked { handler: None, known: None, by_count: true, after: None };

/// What errors are made of: what is replaced, what joins it, and what looks like either.
const PARTS: [&str; 38] = [
    "a",
    "f",
    "Z",
    "0",
    "17",
    "\"",
    "'",
    "`",
    "?",
    "=",
    "&",
    " ",
    " ",
    "#",
    ".",
    ",",
    ":",
    "_",
    "+",
    "-",
    "-",
    "\t",
    "\r",
    "\n",
    "é",
    "ß",
    "/",
    "İ",
    "١",
    "𝟏",
    "(",
    "timed out",
    "can't",
    "\u{a0}",
    "deadbeef-dead-beef-dead-beefdeadbeef",
    "12345678-1234-1234-1234-123456789abc",
    "abcdefab-abcd-abcd-abcd-abcdefabcdef",
    "0x1f",
];

/// Texts of such parts, the same at each run.
fn texts(count: usize) -> Vec<String> {
    let mut state = 7_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut text = |parts: usize| (0..parts).map(|_| PARTS[next(PARTS.len())]).collect::<String>();
    let short = (0..count).map(|at| text(1 + at % 40)).collect::<Vec<_>>();
    short.into_iter().chain((0..20).map(|_| text(900))).collect()
}

#[tokio::test]
async fn postgres_groups_errors_as_the_library_does() {
    let table = Table::new().await;
    let texts = texts(3_000);
    let asked = "select wakeq.error_fingerprint(error), wakeq.error_group('REPORTS', 'mail', 'poison', error)
                   from unnest($1::text[]) with ordinality as asked (error, number) order by number";
    let told: Vec<(String, Uuid)> = sqlx::query_as(asked).bind(&texts).fetch_all(&table.pool).await.unwrap();
    assert_eq!(told.len(), texts.len());
    let mail =
        HandlerScope { canvas: OTHER, module: "REPORTS".parse().unwrap(), name: "mail".parse().unwrap() };
    for (text, (fingerprint, group)) in texts.iter().zip(told) {
        assert_eq!(error_fingerprint(text), fingerprint, "{text:?}");
        assert_eq!(ErrorGroupId::of(&mail, "poison", Some(text)).0, group, "{text:?}");
    }
    let none = "select wakeq.error_group('REPORTS', 'mail', 'poison', null)";
    let none: Uuid = sqlx::query_scalar(none).fetch_one(&table.pool).await.unwrap();
    assert_eq!(ErrorGroupId::of(&mail, "poison", None).0, none);
}

/// Adds dead events of a canvas, a second apart, the first one now.
async fn die(table: &Table, canvas: CanvasId, name: &str, error: &str, count: i32) {
    let add = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                              last_error, cause, died_at)
               select gen_random_uuid(), $1, 'WORKER', $2, '_', '1', 2, now(), 3, 0, replace($3, '<n>', n::text), 'retries',
                      now() - n * interval '1 s'
                 from generate_series(1, $4) n";
    let add = sqlx::query(add).bind(canvas.0).bind(name).bind(error).bind(count);
    add.execute(&table.pool).await.unwrap();
}

/// The groups of a page with their counts, and how many events were looked at.
async fn groups(
    table: &Table,
    canvas: CanvasId,
    asked: ErrorGroupsAsked<'_>,
    looks: (i64, i64),
) -> (Vec<ErrorGroup>, u64) {
    let found = table.store.error_groups(canvas, asked, false, looks).await.unwrap();
    (found.groups.into_iter().map(|(_, group)| group).collect(), found.looked_at)
}

fn told(groups: &[ErrorGroup]) -> Vec<(&str, u64)> {
    groups.iter().map(|group| (group.fingerprint.as_str(), group.count)).collect()
}

#[tokio::test]
async fn events_of_one_error_are_a_group() {
    let table = Table::new().await;
    die(&table, CanvasId::DEFAULT, "mail", "no answer after <n> s", 3).await;
    die(&table, CanvasId::DEFAULT, "mail", "refused", 2).await;
    die(&table, CanvasId::DEFAULT, "ship", "refused", 1).await;
    die(&table, OTHER, "mail", "refused", 50).await;
    let (all, looked_at) = groups(&table, CanvasId::DEFAULT, ALL, (100, 100)).await;
    assert_eq!(told(&all), [("no answer after # s", 3), ("refused", 2), ("refused", 1)]);
    assert_eq!(looked_at, 6);
    let first = &all[0];
    assert_eq!((first.handler.name.as_str(), first.cause.as_str()), ("mail", "retries"));
    assert_eq!(first.error.as_deref(), Some("no answer after 1 s"), "the one that died last");
    assert_eq!((first.last_died_at - first.first_died_at).num_seconds(), 2);
    let mail = &first.handler;
    let of_mail = ErrorGroupsAsked { handler: Some(mail), ..ALL };
    let (of_mail, looked_at) = groups(&table, CanvasId::DEFAULT, of_mail, (100, 100)).await;
    assert_eq!((told(&of_mail), looked_at), (vec![("no answer after # s", 3), ("refused", 2)], 5));
    let (latest, looked_at) = groups(&table, CanvasId::DEFAULT, ALL, (3, 100)).await;
    assert_eq!(latest.iter().map(|group| group.count).sum::<u64>(), 3, "those that died last");
    assert_eq!(looked_at, 3);
    // The same group, of each canvas by itself.
    let shared = ErrorGroupId::of(mail, "retries", Some("refused"));
    for (canvas, count) in [(CanvasId::DEFAULT, 2), (OTHER, 50)] {
        let one = table.store.error_group(canvas, shared, false, 100).await.unwrap().unwrap();
        assert_eq!((one.id, one.count, one.handler.canvas), (shared, count, canvas));
    }
    assert_eq!(table.store.error_group(OTHER, first.id, false, 100).await.unwrap(), None);
    let some = table.store.error_group(OTHER, shared, false, 20).await.unwrap().unwrap();
    assert_eq!(some.count, 20);
    let selected = EventFilter { error_group: Some(shared), ..EventFilter::default() };
    let found = table.store.search_dead(CanvasId::DEFAULT, &selected, true, None, (100, 100)).await.unwrap();
    assert_eq!(found.iter().filter(|dead| dead.is_meant).count(), 2);
    let live = table.add(1).await.len();
    let found = table.store.events(CanvasId::DEFAULT, &selected, true, None, (100, 100)).await.unwrap();
    assert_eq!((live, found.iter().filter(|event| event.is_meant).count()), (1, 0), "it is not dead");
}

/// A page goes on behind the last group of the one before, in both orders.
#[tokio::test]
async fn groups_are_listed_page_by_page() {
    let table = Table::new().await;
    for (error, count) in [("a", 3), ("b", 2), ("c", 2), ("d", 2), ("e", 1)] {
        die(&table, CanvasId::DEFAULT, "mail", error, count).await;
        die(&table, OTHER, "mail", error, 9).await;
    }
    table.run("update wakeq.dead_events set died_at = died_at + interval '1 h' where last_error = 'e'").await;
    for by_count in [true, false] {
        let mut asked = ErrorGroupsAsked { by_count, ..ALL };
        let mut errors = Vec::new();
        loop {
            let page = table.store.error_groups(CanvasId::DEFAULT, asked, false, (100, 2)).await.unwrap();
            assert_eq!(page.looked_at, 10);
            let Some((last, _)) = page.groups.last() else { break };
            asked.after = Some(*last);
            errors.extend(page.groups.into_iter().map(|(_, group)| group.fingerprint));
        }
        let first = if by_count { "a" } else { "e" };
        assert_eq!((errors.len(), errors[0].as_str()), (5, first));
        if by_count {
            assert_eq!(errors[4], "e");
        }
        errors.sort();
        assert_eq!(errors, ["a", "b", "c", "d", "e"]);
    }
}

/// Copies that their queue does not show are no part of a group, and make none known.
#[tokio::test]
async fn hidden_copies_are_not_counted() {
    let table = Table::new().await;
    die(&table, CanvasId::DEFAULT, "mail", "refused", 2).await;
    die(&table, CanvasId::DEFAULT, "mail", "hidden", 2).await;
    table.run("insert into wakeq.queues (name, created_by, updated_by) values ('q', 'test', 'test')").await;
    table
        .run(
            "update wakeq.dead_events set queue = 'q', origin = gen_random_uuid(), last_error = 'refused'
              where last_error = 'hidden' and died_at = (select max(died_at) from wakeq.dead_events)",
        )
        .await;
    table.run("update wakeq.dead_events set queue = 'q', origin = gen_random_uuid() where last_error = 'hidden'").await;
    let (shown, looked_at) = groups(&table, CanvasId::DEFAULT, ALL, (100, 100)).await;
    assert_eq!((told(&shown), looked_at), (vec![("refused", 2)], 4));
    let of_copies = "select queue is not null from wakeq.dead_events where id = $1";
    let of_copies = sqlx::query_scalar::<_, bool>(of_copies).bind(shown[0].example.0);
    assert!(!of_copies.fetch_one(&table.pool).await.unwrap(), "the example is shown");
    let all = table.store.error_groups(CanvasId::DEFAULT, ALL, true, (100, 100)).await.unwrap();
    let all: Vec<_> = all.groups.into_iter().map(|(_, group)| group).collect();
    assert_eq!(told(&all), [("refused", 3), ("hidden", 1)]);
    let (hidden, ada) = (all[1].id, Actor::user("ada"));
    assert_eq!(table.store.error_group(CanvasId::DEFAULT, hidden, false, 100).await.unwrap(), None);
    let known = table.store.know_error(CanvasId::DEFAULT, hidden, (None, false), &ada).await.unwrap();
    assert_eq!(known, KnowOutcome::Missing);
    let known = table.store.know_error(CanvasId::DEFAULT, hidden, (None, true), &ada).await.unwrap();
    assert!(matches!(known, KnowOutcome::Known(_)), "{known:?}");
}

#[tokio::test]
async fn a_canvas_knows_a_thousand_errors() {
    let table = Table::new().await;
    let ada = Actor::user("ada");
    for canvas in [CanvasId::DEFAULT, OTHER] {
        die(&table, canvas, "mail", "one", 1).await;
        die(&table, canvas, "mail", "two", 1).await;
    }
    let (all, _) = groups(&table, CanvasId::DEFAULT, ALL, (100, 100)).await;
    let [one, two] = [all[0].id, all[1].id];
    let know =
        async |canvas, group, note| table.store.know_error(canvas, group, (note, false), &ada).await.unwrap();
    let KnowOutcome::Known(first) = know(CanvasId::DEFAULT, one, Some("a ticket")).await else { panic!() };
    assert_eq!((first.note.as_deref(), first.by.as_str()), (Some("a ticket"), "ada"));
    let nowhere = ErrorGroupId(Uuid::from_u128(1));
    assert_eq!(know(CanvasId::DEFAULT, nowhere, None).await, KnowOutcome::Missing);
    table
        .run(
            "insert into wakeq.known_errors (canvas_id, error_group, known_by)
             select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'test' from generate_series(1, 999)",
        )
        .await;
    assert_eq!(know(CanvasId::DEFAULT, two, None).await, KnowOutcome::TooMany);
    assert!(matches!(know(CanvasId::DEFAULT, one, None).await, KnowOutcome::Known(_)), "it is one of them");
    assert!(matches!(know(OTHER, two, None).await, KnowOutcome::Known(_)), "each canvas has its own");
    let known = ErrorGroupsAsked { known: Some(true), ..ALL };
    let unknown = ErrorGroupsAsked { known: Some(false), ..ALL };
    let ids = async |canvas, asked| {
        groups(&table, canvas, asked, (100, 100)).await.0.iter().map(|group| group.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(CanvasId::DEFAULT, known).await, [one]);
    assert_eq!(ids(CanvasId::DEFAULT, unknown).await, [two]);
    assert_eq!((ids(OTHER, known).await, ids(OTHER, unknown).await), (vec![two], vec![one]));
    assert!(!table.store.forget_error(OTHER, one, &ada).await.unwrap());
    assert!(table.store.forget_error(CanvasId::DEFAULT, one, &ada).await.unwrap());
    assert!(!table.store.forget_error(CanvasId::DEFAULT, one, &ada).await.unwrap());
    assert_eq!(ids(OTHER, known).await, [two]);
    let lines = "select count(*) from wakeq.audit_log where action in ('know-error', 'forget-error')
                    and detail like '%group %' and actor = 'ada'";
    assert_eq!(table.number(lines).await, 4);
}

/// A mark goes when no event of its group is left and it is old, whatever another canvas has. Those
/// that stay hold up no others.
#[tokio::test]
async fn old_marks_are_forgotten() {
    let table = Table::new().await;
    die(&table, CanvasId::DEFAULT, "mail", "still", 1).await;
    let (all, _) = groups(&table, CanvasId::DEFAULT, ALL, (100, 100)).await;
    let add = "insert into wakeq.known_errors (canvas_id, error_group, known_by, known_at, looked_at)
               select canvas, $1, 'test', now() - interval '1 year', now() - interval '31 days'
                 from unnest($2::uuid[]) canvas";
    let canvases = vec![CanvasId::DEFAULT.0, OTHER.0];
    sqlx::query(add).bind(all[0].id.0).bind(canvases).execute(&table.pool).await.unwrap();
    table
        .run(
            "insert into wakeq.known_errors (canvas_id, error_group, known_by, looked_at)
             select gen_random_uuid(), gen_random_uuid(), 'test', now() - interval '29 days'",
        )
        .await;
    let expire = async || table.store.expire(ExpiryPart::KnownErrors, Retention::default()).await.unwrap();
    let left = "select count(*) from wakeq.known_errors";
    assert!(!expire().await);
    assert_eq!(table.number(left).await, 2);
    let (all, _) = groups(&table, CanvasId::DEFAULT, ALL, (100, 100)).await;
    assert!(all[0].known.is_some());
    let looked_at = "select count(*) from wakeq.known_errors where looked_at < now() - interval '30 days'";
    assert_eq!(table.number(looked_at).await, 0, "it is looked at again in a month");
    table.run("delete from wakeq.dead_events").await;
    table.run("update wakeq.known_errors set looked_at = now() - interval '31 days'").await;
    assert!(!expire().await);
    assert_eq!(table.number(left).await, 0);
}

/// The events of a small group are found by their index among very many others, and so is their
/// count; in a generic plan as well.
#[tokio::test]
async fn a_group_is_found_by_its_index() {
    let table = Table::of_one_connection().await;
    for (canvas, error, count) in
        [(CanvasId::DEFAULT, "many", 20_000), (CanvasId::DEFAULT, "few", 3), (OTHER, "few", 20_000)]
    {
        die(&table, canvas, "mail", error, count).await;
    }
    let mail = HandlerScope::worker(CanvasId::DEFAULT, "mail").unwrap();
    let few = ErrorGroupId::of(&mail, "retries", Some("few"));
    let filter = EventFilter { error_group: Some(few), ..EventFilter::default() };
    let found = table.store.search_dead(CanvasId::DEFAULT, &filter, true, None, (10_000, 100)).await.unwrap();
    assert_eq!(found.len(), 3);
    let one = table.store.error_group(CanvasId::DEFAULT, few, true, 100_000).await.unwrap().unwrap();
    assert_eq!(one.count, 3);
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let set = sqlx::query("select set_config('plan_cache_mode', $1, false)").bind(mode);
        table.store.session().await.unwrap().execute("set", set).await.unwrap();
        let canvas = CanvasId::DEFAULT;
        let searched = format!(
            "'{canvas}', 10000, '{}', 100, true, false, null, '{}', null, '{few}'",
            filter.json(),
            Uuid::max()
        );
        let searched = plan(&table.store, "d.error_group = $10", &searched).await;
        let counted =
            plan(&table.store, "d.error_group = $2", &format!("'{canvas}', '{few}', 100000, true")).await;
        for plan in [searched, counted] {
            assert!(buffers(&plan, "") < 300, "{mode}: {plan}");
        }
    }
}
