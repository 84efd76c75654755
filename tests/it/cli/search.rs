//! `wakeq events list`, `count` and `tag` by a filter, on the database and against a server: the
//! same output; another tenant's tags are others.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

async fn plays(terminal: &Terminal) {
    let emit =
        ["emit", "ship", r#"{"id": 7}"#, "--tag", "customer:7", "--tag", "late", "--after", "1h", "--json"];
    let emitted: serde_json::Value = serde_json::from_str(&terminal.raw(&emit).await).unwrap();
    let id = emitted["id"].as_str().unwrap();
    assert_eq!(terminal.prints(&["emit", "ship", r#"{"id": 8}"#, "--tag", "customer:8"]).await, "<id>\n");
    let counted = async |options: &[&str]| {
        let line: Vec<&str> = ["events", "count"].iter().chain(options).copied().collect();
        terminal.prints(&line).await
    };
    assert_eq!(counted(&["--tag", "customer:7"]).await, "1 event of 1 examined\n");
    assert_eq!(counted(&["--tag", "customer:7", "--tag", "late"]).await, "1 event of 1 examined\n");
    assert_eq!(counted(&["--value", "$.id = 8"]).await, "1 event of 2 examined\n");
    assert_eq!(counted(&["--state", "delayed", "--state", "running"]).await, "1 event of 2 examined\n");
    assert_eq!(counted(&["--state", "dead"]).await, "0 events of 0 examined\n");
    let listed = terminal.raw(&["events", "list", "--tag", "late", "--json"]).await;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["id"]), (1, &emitted["id"]));
    assert_eq!(terminal.prints(&["events", "tag", id, "customer:9"]).await, "<id> has 1 tag now\n");
    assert_eq!(terminal.prints(&["events", "list", "--tag", "late"]).await, "no events\n");
    let explained = terminal.prints(&["explain", id]).await;
    assert!(explained.lines().any(|line| line.ends_with(" tags customer:9")), "{explained}");
    assert_eq!(terminal.prints(&["events", "tag", id, "--none"]).await, "<id> has no tags now\n");
    let refused = [
        ("events list --tag a,b", 2, "a tag has 1 to 100"),
        ("events list --state dead", 2, "a state is ready"),
        ("events count --value 7", 2, "a condition on the value looks like"),
        ("events tag 00000000-0000-4000-8000-000000000000", 2, "required"),
        ("events reschedule 00000000-0000-4000-8000-000000000000", 2, "required"),
        ("events list --object a/", 2, "is not a valid object"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_are_found_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_are_found_through_a_server() {
    let service = Service::start().await;
    plays(&Terminal::with_key(&service, &service.key)).await;
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    let counted = theirs.prints(&["events", "count", "--tag", "customer:8"]).await;
    assert_eq!(counted, "0 events of 0 examined\n");
    service.stop().await;
}
