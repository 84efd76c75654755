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
    let id = terminal.raw(&["emit", "greet", "6", "--id", "00000000-0000-4000-8000-000000000006"]).await;
    assert!(!id.is_empty());
    let named = [
        "operations",
        "begin",
        "delete",
        "--id",
        "00000000-0000-4000-8000-000000000006",
        "--id",
        "00000000-0000-4000-8000-000000000007",
    ];
    let shown = terminal.prints(&named).await;
    for line in ["named     2 events\n", "state     done\n", "changed   1 event\n"] {
        assert!(shown.contains(line), "{line} {shown}");
    }
    let missing = "00000000-0000-4000-8000-000000000003";
    let (show, cancel) = (format!("operations show {missing}"), format!("operations cancel {missing}"));
    terminal
        .refuses(&[
            (show.as_str(), 3, "no operation"),
            (cancel.as_str(), 3, "no operation"),
            ("operations begin delete", 2, "say which"),
            ("operations begin stop --all", 2, "stop"),
            (
                "operations begin delete --id 00000000-0000-4000-8000-000000000006 --state ready",
                2,
                "either by --id",
            ),
            ("operations begin delete --all --state gone", 2, "a state is"),
        ])
        .await;
    let left =
        "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000007'";
    assert_eq!(service.stage.pool.value::<i64>(left).await, 5, "those of another canvas");
}

/// The first page of a `cancel` finds that somebody has cancelled the operation, that of another
/// kind that it can't go on.
const ENDS_EARLY: &str = "
    create function public.end_early() returns trigger language plpgsql as $$
    begin
        new.state := case new.kind when 'cancel' then 'cancelled' else 'failed' end;
        new.error := case new.kind when 'cancel' then null else 'it can''t be read' end;
        new.ended_at := clock_timestamp();
        return new;
    end $$;
    create trigger end_early before update on wakeq.operations
        for each row when (new.ended_at is null) execute function public.end_early();";

async fn ends_early(service: &Service, terminal: &Terminal) {
    greet_both(service).await;
    service.stage.execute(ENDS_EARLY).await;
    for (kind, code, state, words) in
        [("cancel", 5, "cancelled", "somebody has cancelled"), ("retag", 1, "failed", "it can't be read")]
    {
        let tag: &[&str] = if kind == "retag" { &["--add-tag", "late"] } else { &[] };
        let begin = [&["operations", "begin", kind, "--handler", "greet"][..], tag].concat();
        let ended = terminal.run(&begin).await;
        assert_eq!(ended.code, Some(code), "{kind}: {ended:?}");
        assert!(ended.out.contains(&format!("state     {state}\n")), "{kind}: {ended:?}");
        assert!(ended.err.contains(words), "{kind}: {ended:?}");
        greet_both(service).await;
    }
    let detached = ["operations", "begin", "retag", "--add-tag", "late", "--all", "--detach"];
    assert_eq!(terminal.run(&detached).await.code, Some(0), "nobody waits for its end");
    let theirs =
        "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000007'
                     and options is null";
    assert_eq!(service.stage.pool.value::<i64>(theirs).await, 15, "those of another canvas");
}

#[tokio::test]
async fn the_exit_code_says_how_an_operation_on_the_database_ended() {
    let service = Service::start().await;
    ends_early(&service, &Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
async fn the_exit_code_says_how_an_operation_on_a_server_ended() {
    let service = Service::start().await;
    let key = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    ends_early(&service, &Terminal::with_key(&service, &key)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn operations_are_begun_on_the_database() {
    let service = Service::start().await;
    plays(&service, &Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn operations_are_begun_on_a_server() {
    let service = Service::start().await;
    let scopes = [Scope::Emit, Scope::Read, Scope::Values, Scope::Operate];
    let key = service.key("ada", CanvasId::DEFAULT, &scopes).await;
    plays(&service, &Terminal::with_key(&service, &key)).await;
    service.stop().await;
}
