//! `wakeq operations` on the database and against a server: the same output.

use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

/// Emits events of `greet` on both canvases.
async fn greet_both(service: &Service) {
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let event = |at: usize| Event::new("greet", &at).unwrap().canvas(canvas);
        service.stage.queue.emit_all((0..5).map(event).collect()).await.unwrap();
    }
}

async fn plays(service: &Service, terminal: &Terminal) {
    greet_both(service).await;
    let retag =
        ["operations", "begin", "retag", "--handler", "greet", "--value", "$ = 3", "--add-tag", "three"];
    let counted = terminal.prints(&[&retag[..], &["--dry-run"]].concat()).await;
    assert_eq!(counted, "1 event would be changed (--before <time>)\n");
    let shown = terminal.prints(&retag).await;
    for line in [
        "kind      retag\n",
        "adds      three\n",
        "state     done\n",
        "preview   1 event\n",
        "looked at 5 events\n",
        "changed   1 event\n",
        "skipped   0 events\n",
    ] {
        assert!(shown.contains(line), "{line} {shown}");
    }
    terminal.prints(&["operations", "begin", "delete", "--tag", "three"]).await;
    terminal.prints(&["operations", "begin", "cancel", "--all"]).await;
    let listed = terminal.prints(&["operations", "list"]).await;
    let kinds: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().skip(1).take(4).collect()).collect();
    assert_eq!(
        kinds,
        [
            ["KIND", "STATE", "CHANGED", "SKIPPED"],
            ["cancel", "done", "4", "0"],
            ["delete", "done", "1", "0"],
            ["retag", "done", "1", "0"]
        ]
    );
    let missing = "00000000-0000-4000-8000-000000000003";
    let (show, cancel) = (format!("operations show {missing}"), format!("operations cancel {missing}"));
    terminal
        .refuses(&[
            (show.as_str(), 3, "no operation"),
            (cancel.as_str(), 3, "no operation"),
            ("operations begin delete", 2, "say which"),
            ("operations begin stop --all", 2, "stop"),
            ("operations begin delete --all --state gone", 2, "a state is"),
        ])
        .await;
    let left =
        "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000007'";
    assert_eq!(service.stage.pool.value::<i64>(left).await, 5, "those of another canvas");
}

#[tokio::test]
async fn operations_are_begun_on_the_database() {
    let service = Service::start().await;
    plays(&service, &Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
async fn operations_are_begun_on_a_server() {
    let service = Service::start().await;
    let key = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    plays(&service, &Terminal::with_key(&service, &key)).await;
    service.stop().await;
}
