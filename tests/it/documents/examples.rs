//! The programs in `examples/` do what they say.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::{CanvasId, Store, StoreConfig};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_testbed::{ChildProcess, Guard, Launch, TestDatabase};

use crate::support::service::make_key;
use crate::support::{OTHER, TIMEOUT, database, fit, wait_while};

macro_rules! programs {
    ($($program:ident, $path:literal;)*) => {$(
        #[path = $path]
        mod $program;

        #[test]
        #[ignore = "a program, which a test below starts"]
        fn $program() {
            $program::main().unwrap();
        }
    )*};
}

programs! {
    hello, "../../../examples/hello.rs";
    retries, "../../../examples/retries.rs";
    finish, "../../../examples/finish.rs";
    order, "../../../examples/order.rs";
    cron, "../../../examples/cron.rs";
    queue, "../../../examples/queue.rs";
    limits, "../../../examples/limits.rs";
    orders, "../../../examples/axum.rs";
    embedded, "../../../service/examples/embedded.rs";
    entity, "../../../streams/examples/entity.rs";
    groups, "../../../streams/examples/groups.rs";
}

/// Programs that end by themselves, with words of their last lines.
macro_rules! say {
    ($($name:ident: $program:literal says [$($words:literal),*];)*) => {$(
        #[tokio::test]
        async fn $name() {
            says($program, &[$($words),*]).await;
        }
    )*};
}

say! {
    the_first_one_greets: "hello" says ["Hello, Ada!", "shutting down"];
    retries_end_in_success_or_death: "retries"
        says ["flaky, attempt 3", "Some(\"flaky\") completed", "no such column", "Some(\"broken\") completed"];
    pages_are_imported_exactly_once: "finish"
        says ["Some(Inserted)", "Some(Kept)", "attempt 1: page 2", "attempt 2: page 3", "4 pages after attempt 2"];
    objects_keep_their_order: "order" says ["work:1 \"deleted\"", "work:2 \"deleted\""];
    a_cron_ticks: "cron" says ["tick at Some("];
    a_queue_gets_copies: "queue" says ["number Some(2) of 21"];
    each_customer_has_two_places: "limits"
        says ["customer:7: 6 events, at most 2 at a time", "customer:8: 6 events, at most 2 at a time"];
    an_entity_refuses_what_is_invalid: "entity"
        says ["deposit: completed", "withdraw: failed there are only 500 cents", "version 2: {\"cents\":300}"];
}

async fn says(program: &str, words: &[&str]) {
    let database = database().await;
    let child = start(&database, program, &[]);
    let status = tokio::time::timeout(TIMEOUT, child.ended()).await.expect("it ends");
    let lines = child.last_lines();
    assert!(status.success() && words.iter().all(|words| lines.contains(words)), "{status}: {lines}");
}

/// An order that is refused after its event was emitted leaves neither.
#[tokio::test]
async fn an_order_over_http_and_its_event_are_committed_together() {
    let database = database().await;
    let server = start(&database, "orders", &[]);
    wait_while!(!server.last_lines().contains("listening on "), "it listens");
    let lines = server.last_lines();
    let (_, url) = lines.split_once("listening on ").unwrap();
    let orders = format!("{}/orders", url.lines().next().unwrap());
    let client = reqwest::Client::new();
    let (refused, taken) = (StatusCode::UNPROCESSABLE_ENTITY, StatusCode::OK);
    for (item, status) in [("poison", refused), ("tea", taken), ("milk", taken)] {
        let answer = client.post(&orders).json(&json!({ "item": item })).send().await.unwrap();
        assert_eq!(answer.status(), status, "{item}");
    }
    wait_while!(server.last_lines().matches("a mail about").count() < 2, "the events run");
    server.stop(TIMEOUT).await.unwrap();
    let lines = server.last_lines();
    assert!(lines.contains("tea") && lines.contains("milk") && !lines.contains("about poison"), "{lines}");
    assert!(server.ended().await.success(), "{lines}");
}

/// The API answers below its path with a key, and the shop's own events are the queue's.
#[tokio::test]
async fn a_shop_has_the_queue_in_it() {
    let database = database().await;
    let server = start(&database, "embedded", &[]);
    wait_while!(!server.last_lines().contains("listening on "), "it listens");
    let lines = server.last_lines();
    let (_, url) = lines.split_once("listening on ").unwrap();
    let url = url.lines().next().unwrap();
    let client = reqwest::Client::new();
    let order = client.post(format!("{url}/orders")).json(&json!({ "item": "tea" }));
    assert_eq!(order.send().await.unwrap().status(), StatusCode::OK);
    wait_while!(!server.last_lines().contains("1 orders, 1 of them new"), "the batch runs");
    wait_while!(!server.last_lines().contains("a mail about tea, attempt 1"), "the mail is sent");

    let store = Store::connect(database.url(), fit(StoreConfig::default())).await.unwrap();
    let access = Access::new(store, AccessConfig::default()).unwrap();
    let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
    let events = format!("{url}/queue/v1/canvases/{}/events", CanvasId::DEFAULT);
    let event = json!({ "name": "confirm-order", "value": { "item": "milk" } });
    let emitted = client.post(&events).bearer_auth(&key).json(&event).send().await.unwrap();
    assert_eq!(emitted.status(), StatusCode::ACCEPTED);
    let location = emitted.headers()["location"].to_str().unwrap();
    assert!(location.starts_with("/queue/v1/canvases/"), "{location}");
    wait_while!(!server.last_lines().contains("a mail about milk"), "the mail is sent");
    let elsewhere = events.replace(&CanvasId::DEFAULT.to_string(), &OTHER.to_string());
    let refused = client.post(elsewhere).bearer_auth(&key).json(&event).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);
    server.stop(TIMEOUT).await.unwrap();
    assert!(server.ended().await.success(), "{}", server.last_lines());
}

/// Each of two members receives some of what a third program appends.
#[tokio::test]
async fn members_of_a_group_share_what_is_appended() {
    let database = database().await;
    let members = [(); 2].map(|()| start(&database, "groups", &[]));
    let appending = start(&database, "groups", &["append"]);
    for member in &members {
        wait_while!(!member.last_lines().contains(" changed "), "each receives some");
    }
    appending.kill_9().await.unwrap();
    for member in members {
        member.stop(TIMEOUT).await.unwrap();
        assert!(member.ended().await.success(), "{}", member.last_lines());
    }
}

/// The program as a process. The harness takes its arguments for tests, of which there are none.
fn start(database: &TestDatabase, program: &str, arguments: &[&str]) -> ChildProcess {
    let launch = Launch::new(std::env::current_exe().unwrap())
        .arguments(["--exact", &format!("documents::examples::{program}"), "--ignored", "--nocapture"])
        .arguments(arguments)
        .environment("DATABASE_URL", database.url())
        .environment("PORT", "0");
    Guard::new(None).unwrap().start(launch).unwrap()
}
