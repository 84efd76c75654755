//! `wakeq batches` on the database and against a server: the same output; another tenant's batch of
//! the same name is another batch.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ batches open import:42 imported 7
batch import:42 is open, and emits to WORKER/imported/_
$ batches open import:42 imported 7
batch import:42 is open, and emits to WORKER/imported/_
$ emit row 1 --batch import:42
<id>
$ batches cancel import:42
batch import:42 is given up
";

async fn plays(terminal: &Terminal) {
    terminal.plays(SESSION).await;
    let shown = terminal.prints(&["batches", "show", "import:42"]).await;
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("state ").ends_with("cancelled"), "{shown}");
    assert!(line("left ").ends_with(" 1"), "{shown}");
    terminal.prints(&["batches", "open", "import:43", "image/done/small"]).await;
    let closed = terminal.prints(&["batches", "close", "import:43"]).await;
    assert!(closed.contains("ended") && closed.contains("image/done/small"), "{closed}");
    let listed = terminal.prints(&["batches", "list"]).await;
    assert!(listed.contains("import:42") && listed.contains("import:43"), "{listed}");
    let refused = [
        ("batches open ä imported", 2, "visible ASCII"),
        ("batches open import:43 imported", 5, "exists already"),
        ("batches close import:44", 3, ""),
        ("batches show import:44", 3, ""),
        ("emit row 1 --batch import:42", 5, "is over"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_batch_is_opened_and_shown_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_batch_is_opened_and_shown_through_a_server() {
    let service = Service::start().await;
    plays(&Terminal::with_key(&service, &service.key)).await;
    let key = service.key("other", OTHER, &[Scope::Emit, Scope::Read]).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    assert_eq!(theirs.prints(&["batches", "list"]).await, "no batches\n");
    assert_eq!(service.stop().await.rows().await, 2);
}
