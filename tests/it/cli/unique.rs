//! `wakeq emit --unique` on the database and against a server: the same output; another tenant's
//! key is another key.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ emit recompute 1 --unique invoice:42 --after 1h
<id>
$ emit recompute 2 --unique invoice:42
<id>  (has the key: nothing added)
$ emit recompute 3 --unique invoice:42 --on-conflict replace --after 2h
<id>  (replaced)
$ emit recompute 4 --unique invoice:42 --on-conflict postpone --postpone 3h --at-most 1day
<id>  (postponed until <time>)
$ emit mail 5 --unique ada --remember 1h
<id>
$ emit mail 6 --unique ada --until ended --on-conflict keep
<id>  (has the key: nothing added)
";

async fn plays(terminal: &Terminal) {
    terminal.plays(SESSION).await;
    let shown = terminal.raw(&["emit", "recompute", "7", "--unique", "invoice:42", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["outcome"], "kept");
    let explained = terminal.prints(&["explain", shown["id"].as_str().unwrap()]).await;
    let names_key = explained.lines().any(|line| line.starts_with("key ") && line.ends_with(" invoice:42"));
    assert!(names_key, "{explained}");
    let value = terminal.prints(&["events", "show", shown["id"].as_str().unwrap()]).await;
    assert!(value.lines().any(|line| line.starts_with("value ") && line.ends_with(" 4")), "{value}");
    let refused = [
        ("emit mail 1 --unique k --id 00000000-0000-4000-8000-000000000000", 2, "cannot be used with"),
        ("emit mail 1 --unique k --on work:1", 2, "cannot be used with"),
        ("emit mail 1 --until ended", 2, "--unique"),
        ("emit mail 1 --unique k --until started --remember 1h", 2, "exclude each other"),
        ("emit mail 1 --unique k --on-conflict postpone", 2, "postpone"),
        ("emit mail 1 --unique k --postpone 5s", 2, "--at-most"),
        ("emit mail 1 --unique k --on-conflict drop", 2, "possible values"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_event_is_emitted_with_a_key_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
async fn an_event_is_emitted_with_a_key_through_a_server() {
    let service = Service::start().await;
    plays(&Terminal::with_key(&service, &service.key)).await;
    let key = service.key("other", OTHER, &[Scope::Emit]).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    assert_eq!(theirs.prints(&["emit", "recompute", "1", "--unique", "invoice:42"]).await, "<id>\n");
    assert_eq!(service.stop().await.rows().await, 3);
}
