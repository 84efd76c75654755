//! `wakeq events ended`, and attempts in `wakeq explain`, on the database and against a server.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// An ended event of the default canvas, which was tried twice.
const ENDED: &str = "
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, enqueued_at, due_at,
                                    started_at, took_us, worker, claims, retries, losses, options)
    values ('00000000-0000-0000-0000-000000000000', 'a0000000-0000-4000-8000-000000000001', now() + interval '1 day', 'WORKER',
            'refund', '_', '7', '{\"receipt\": 9}', 'completed', now(), now(), now(), 1500000, 'orders-1', 2, 1, 0,
            '{\"tags\": [\"customer:7\"]}');
    insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, worker, started_at, took_us, error)
    values ('00000000-0000-0000-0000-000000000000', 'a0000000-0000-4000-8000-000000000001', 1, 5, 'retried', 'orders-1', now(),
            250000, 'no route')";

const ID: &str = "a0000000-0000-4000-8000-000000000001";

async fn shows(terminal: &Terminal) {
    let list = terminal.raw(&["events", "ended"]).await;
    assert!(list.contains(ID) && list.contains("completed") && list.contains("1.500 s"), "{list}");
    assert_eq!(
        terminal.raw(&["events", "ended", "--handler", "refund", "--outcome", "completed"]).await,
        list
    );
    let none = terminal.prints(&["events", "ended", "--outcome", "failed"]).await;
    assert_eq!(none, "no ended events are kept\n");
    let found = ["--tag", "customer:7", "--result", "$.receipt = 9", "--since", "2020-01-01T00:00:00Z"];
    let line =
        |options: &[&'static str]| ["events", "ended"].iter().chain(options).copied().collect::<Vec<_>>();
    assert_eq!(terminal.raw(&line(&found)).await, list);
    assert_eq!(terminal.prints(&line(&[&found[..], &["--count"]].concat())).await, "1 event of 1 examined\n");
    assert_eq!(terminal.prints(&line(&["--count", "--value-text", "8"])).await, "0 events of 1 examined\n");
    let explained = terminal.raw(&["explain", ID]).await;
    let attempt = explained.lines().find(|line| line.starts_with("attempt ")).unwrap();
    assert!(
        attempt.contains("1 retried after 0.25 s") && attempt.ends_with("on orders-1: no route"),
        "{attempt}"
    );
    assert!(!explained.contains("receipt"), "{explained}");
    let shown = terminal.raw(&["events", "show", ID]).await;
    assert!(shown.lines().any(|line| line.starts_with("result ")) && shown.contains("receipt"), "{shown}");
    let refused = [
        ("events ended --outcome dead", 2, "completed, failed or cancelled"),
        ("events ended --tag a,b", 2, "a tag has 1 to 100"),
        ("events ended --result 7", 2, "a condition on the value looks like"),
        ("events ended --count --limit 5", 2, "cannot be used with"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn ended_events_are_listed_on_the_database() {
    let service = Service::start().await;
    service.stage.execute(ENDED).await;
    shows(&Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn ended_events_are_listed_through_a_server() {
    let service = Service::start().await;
    service.stage.execute(ENDED).await;
    shows(&Terminal::with_key(&service, &service.key)).await;
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    assert_eq!(theirs.prints(&["events", "ended"]).await, "no ended events are kept\n");
    let counted = theirs.prints(&["events", "ended", "--count", "--tag", "customer:7"]).await;
    assert_eq!(counted, "0 events of 0 examined\n");
    service.stop().await;
}
