//! `wakeq emit` with options of the event, on the database and against a server: the same output.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

async fn plays(terminal: &Terminal) {
    let emit = [
        "emit",
        "charge",
        "42",
        "--after",
        "1h",
        "--retries",
        "5",
        "--delays",
        "1s,1m 30s",
        "--timeout",
        "500ms",
        "--not-after",
        "2030-01-31T08:05:00Z",
        "--limit",
        "customer:7",
        "--limit",
        "mails",
        "--urgent",
        "--json",
    ];
    let emitted: serde_json::Value = serde_json::from_str(&terminal.raw(&emit).await).unwrap();
    let explained = terminal.raw(&["explain", emitted["id"].as_str().unwrap()]).await;
    let shown = explained.lines().find_map(|line| line.strip_prefix("asks ")).map(str::trim);
    let expected = "retries 5, delays 1s,90s, timeout 0.5s, not after ";
    assert!(shown.is_some_and(|shown| shown.starts_with(expected)), "{explained}");
    assert!(shown.is_some_and(|shown| shown.ends_with(", limits customer:7,mails, urgent")), "{explained}");
    let refused = [
        ("emit charge 1 --retries 1001", 2, "1,000 times at most"),
        ("emit charge 1 --retries many", 2, "invalid value"),
        ("emit charge 1 --delays 31days", 2, "30 days"),
        ("emit charge 1 --timeout 0s", 2, "a millisecond to 30 days"),
        ("emit charge 1 --not-after tomorrow", 2, "invalid value"),
        ("emit charge 1 --limit canvas", 2, "a limit's key has 1 to 200 of the characters"),
        ("emit charge 1 --limit a --limit b --limit c --limit d", 2, "at most 3 different keys of limits"),
        ("emit charge 1 --limit a --only-to-queues", 2, "cannot be used with"),
        ("emit charge 1 --urgent --only-to-queues", 2, "cannot be used with"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
async fn an_event_asks_for_options_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    assert_eq!(service.stop().await.rows().await, 1);
}

#[tokio::test]
async fn an_event_asks_for_options_through_a_server() {
    let service = Service::start().await;
    plays(&Terminal::with_key(&service, &service.key)).await;
    let key = service.key("other", OTHER, &[Scope::Emit]).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    assert_eq!(theirs.prints(&["emit", "charge", "1", "--retries", "0"]).await, "<id>\n");
    assert_eq!(theirs.prints(&["emit", "charge", "1", "--limit", "customer:7", "--urgent"]).await, "<id>\n");
    assert_eq!(service.stop().await.rows().await, 3);
}
