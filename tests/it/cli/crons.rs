//! `wakeq cron list` and `show`: what became of the last tick, on the database and through a
//! server.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::crons::last_events::{DIED, TICKED};
use crate::support::OTHER;
use crate::support::service::Service;

/// The line of the only cron, and what is shown of its last tick.
async fn last(terminal: &Terminal) -> (String, Vec<String>) {
    let list = terminal.prints(&["cron", "list"]).await;
    let line = list.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = terminal.prints(&["cron", "show", "report"]).await;
    let lines = shown.lines().filter(|line| line.starts_with("last ") || line.starts_with("event "));
    (line, lines.map(str::to_owned).collect())
}

async fn shows(service: &Service, terminal: &Terminal) {
    terminal.raw(&["cron", "put", "report", "0 0 1 1 *"]).await;
    let never = ["last      never; 0 events emitted".to_owned()];
    assert_eq!(last(terminal).await, ("report 0 0 1 1 * UTC 0 never - - <time>".to_owned(), never.to_vec()));
    service.stage.execute(TICKED).await;
    let becomes = async |state: &str| {
        let (line, lines) = last(terminal).await;
        assert_eq!(line, format!("report 0 0 1 1 * UTC 1 <time> <id> {state} <time>"));
        let event = format!("event     <id> {state}");
        assert_eq!(lines, ["last      <time>; 1 event emitted".to_owned(), event]);
    };
    becomes("ready").await;
    service.stage.execute("update wakeq.events_v2 set retries = 1").await;
    becomes("retrying").await;
    service.stage.execute(DIED).await;
    becomes("dead").await;
    service.stage.execute("delete from wakeq.dead_events").await;
    becomes("completed or removed").await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn last_ticks_are_shown_on_the_database() {
    let service = Service::start().await;
    shows(&service, &Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
async fn last_ticks_are_shown_through_a_server() {
    let service = Service::start().await;
    shows(&service, &Terminal::with_key(&service, &service.key)).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    assert_eq!(theirs.prints(&["cron", "list"]).await, "no crons\n");
    service.stop().await;
}
