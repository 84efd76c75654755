//! `wakeq dead groups`, `dead know` and `dead forget`, and the commands that take a group, on the
//! database and against a server: the same output; another tenant has groups of its own.

use serde_json::Value;
use wakeq::CanvasId;
use wakeq::control::ErrorGroupId;
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::service::Service;
use crate::support::{OTHER, scope};

/// Kills events of `mail` on both canvases.
async fn die(service: &Service) {
    let die = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                              cause, last_error)
               select gen_random_uuid(), canvas, 'WORKER', 'mail', '_', '1', 2, now(), 3, 0, 'retries', error
                 from unnest($1::uuid[]) canvas, unnest(array['no answer after 1s', 'no answer after 20s', 'refused']) error";
    let canvases = vec![CanvasId::DEFAULT.0, OTHER.0];
    sqlx::query(die).bind(canvases).execute(&service.stage.pool).await.unwrap();
}

/// The columns of a table are as wide as what stands in them, which a mask may have shortened.
fn squeezed(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

async fn plays(service: &Service, terminal: &Terminal) {
    assert_eq!(terminal.prints(&["dead", "groups"]).await, "no dead events\n");
    die(service).await;
    let head = "COUNT LAST DIED GROUP HANDLER CAUSE KNOWN ERROR";
    let listed = async |options: &[&str]| {
        let line: Vec<&str> = ["dead", "groups"].iter().chain(options).copied().collect();
        squeezed(&terminal.prints(&line).await.replace("key:ada", "cli:ada"))
    };
    let (answer, refused) = (
        "2 <time> <id> WORKER/mail retries - no answer after #",
        "1 <time> <id> WORKER/mail retries - refused",
    );
    assert_eq!(listed(&[]).await, [head, answer, refused]);
    assert_eq!(listed(&["--handler", "mail", "--order", "last-died"]).await.len(), 3);
    assert_eq!(listed(&["--handler", "ship"]).await, ["no dead events"]);
    let group = ErrorGroupId::of(&scope("mail"), "retries", Some("no answer after 7s")).to_string();
    let known = terminal.prints(&["dead", "know", &group, "--note", "ticket 17"]).await;
    assert_eq!(known, "error group <id> is known\n");
    let noted = answer.replace(" - ", " ticket 17 ");
    assert_eq!(listed(&["--known"]).await, [head, &noted]);
    assert_eq!(listed(&["--unknown"]).await, [head, refused]);
    terminal.prints(&["dead", "know", &group]).await;
    assert_eq!(listed(&["--known"]).await, [head, &answer.replace(" - ", " cli:ada ")]);
    assert_eq!(
        terminal.prints(&["dead", "forget", &group]).await,
        "error group <id> is not known any more\n"
    );
    assert_eq!(listed(&["--known"]).await, ["no dead events"]);
    let json: Value = serde_json::from_str(&terminal.raw(&["dead", "groups", "--json"]).await).unwrap();
    assert_eq!(json, service.get("/dead-events/groups").await.json());

    let of_group = ["--error-group", &group];
    let line = |words: &[&'static str]| [words, &of_group[..]].concat().join(" ");
    let prints = async |line: String| terminal.prints(&line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(prints(line(&["dead", "list"])).await.lines().count(), 3);
    assert_eq!(prints(line(&["events", "count", "--state", "dead"])).await, "2 events of 2 examined\n");
    let previewed = prints(line(&["dead", "redrive", "--dry-run"])).await;
    assert_eq!(previewed, "2 dead events would be brought back (--before <time>)\n");
    let previewed = prints(line(&["operations", "begin", "delete-dead", "--dry-run"])).await;
    assert_eq!(previewed, "2 events would be changed (--before <time>)\n");
    assert_eq!(prints(line(&["dead", "redrive"])).await, "2 dead events brought back\n");
    assert_eq!(prints(line(&["dead", "delete"])).await, "0 dead events deleted\n");
    assert_eq!(listed(&[]).await, [head, refused]);
    let missing = format!("dead forget {group}");
    terminal
        .refuses(&[
            (missing.as_str(), 3, "not marked as known"),
            ("dead know 00000000-0000-8000-8000-000000000000", 3, "no dead event is of the error group"),
            ("dead know nonsense", 2, "invalid"),
            ("dead groups --known --unknown", 2, "cannot be used with"),
            ("dead groups --cursor nonsense", 2, "not a cursor"),
            ("dead redrive", 2, "--error-group GROUP"),
        ])
        .await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn groups_are_marked_and_redriven_on_the_database() {
    let service = Service::start().await;
    plays(&service, &Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn groups_are_marked_and_redriven_through_a_server() {
    let service = Service::start().await;
    let key = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    plays(&service, &Terminal::with_key(&service, &key)).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    let listed = squeezed(&theirs.prints(&["dead", "groups"]).await);
    assert!(listed.len() == 3 && listed[1].starts_with("2 "), "{listed:?}");
    service.stop().await;
}
