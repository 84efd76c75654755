//! `wakeq limits` on the database and against a server: the same output. The operator's limits take
//! a key for every canvas.

use serde_json::Value;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ limits list
no limits
$ limits set customer --concurrency 5 --rate 100/1m --burst 10
limit customer is set: 5 at a time; 100 per 1m, 10 at once; full: wait
$ limits set customer --concurrency 2 --on-full drop --waiting-max 50
limit customer is replaced: 2 at a time; full: drop; at most 50 wait
$ limits set handler:greet --rate 5/s
limit handler:WORKER/greet is set: 5 per 1s, 1 at once; full: wait
$ limits list
NAME                  ALLOWS                                           CHANGED               BY
customer              2 at a time; full: drop; at most 50 wait  <time>  cli:ada
handler:WORKER/greet  5 per 1s, 1 at once; full: wait           <time>  cli:ada
$ limits set mails --concurrency 1 --all-canvases
limit mails is set: 1 at a time; full: wait
$ limits list --all-canvases
NAME   ALLOWS                    CHANGED               BY
mails  1 at a time; full: wait  <time>  cli:ada
$ limits show mails
limit     mails
allows    1 at a time; full: wait
default   the operator's: the canvas has no limit of this name
changed   <time> by cli:ada
nothing is in use of it
$ limits show customer
limit     customer
allows    2 at a time; full: drop; at most 50 wait
changed   <time> by cli:ada
nothing is in use of it
$ limits remove customer
limit customer is removed
$ limits remove handler:greet
limit handler:WORKER/greet is removed
$ limits remove mails --all-canvases
limit mails is removed
$ limits list --all-canvases
no limits
";

/// The columns of a table are as wide as what stands in them, which a mask may have shortened.
fn squeezed(text: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect::<Vec<_>>().join("\n")
}

async fn plays(terminal: &Terminal) {
    for (line, expected) in super::session(SESSION) {
        let printed = terminal.prints(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(squeezed(&printed.replace("key:ada", "cli:ada")), squeezed(expected), "{line}");
    }
    let refused = [
        ("limits set customer", 2, "--concurrency"),
        ("limits set customer --concurrency 0", 2, "1 to 1,000"),
        ("limits set customer --concurrency 5 --burst 2", 2, "--rate"),
        ("limits set customer --rate 5", 2, "a rate looks like"),
        ("limits set customer --rate 5/s --on-full drop", 2, "--concurrency"),
        ("limits set customer --concurrency 5 --on-full park", 2, "wait, drop, replace or cancel"),
        ("limits set canvas --concurrency 5 --waiting-max 5", 2, "keys that emits name"),
        ("limits set handler:QUEUE/mails --concurrency 5", 2, "in_flight_max"),
        ("limits show customer", 3, "no limit customer"),
        ("limits remove customer", 3, "no limit customer"),
        ("limits list --cursor nonsense", 2, "not a cursor"),
    ];
    terminal.refuses(&refused).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn limits_are_set_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn limits_are_set_by_a_server() {
    let service = Service::start().await;
    plays(&Terminal::wide(&service).await).await;
    let key = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let of_one = Terminal::with_key(&service, &key);
    of_one.prints(&["limits", "set", "customer", "--concurrency", "5"]).await;
    let words = "reaches every canvas";
    of_one
        .refuses(&[
            ("limits set customer --concurrency 5 --all-canvases", 4, words),
            ("limits list --all-canvases", 4, words),
        ])
        .await;
    let other = Terminal::with_key(&service, &service.key("bo", OTHER, &Scope::ALL).await);
    let canvas = OTHER.to_string();
    assert_eq!(other.prints(&["limits", "list", "--canvas", &canvas]).await, "no limits\n");
    let missing = other.complains(3, &["limits", "show", "customer", "--canvas", &canvas]).await;
    assert!(missing.contains("no limit customer"), "{missing}");
    service.stop().await;
}

/// As JSON, `show` has the limit and what is in use of it, as has its table; and an emit says that
/// too many wait.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_limit_and_its_uses_are_json() {
    let service = Service::start().await;
    let terminal = Terminal::beside(&service);
    let set = ["limits", "set", "customer", "--concurrency", "1", "--waiting-max", "1", "--json"];
    let set: Value = serde_json::from_str(&terminal.raw(&set).await).unwrap();
    assert_eq!((&set["new"], &set["limit"]["waiting_max"]), (&Value::from(true), &Value::from(1)));
    let shown: Value =
        serde_json::from_str(&terminal.raw(&["limits", "show", "customer", "--json"]).await).unwrap();
    assert_eq!(
        (&shown["limit"], &shown["uses"]["items"]),
        (&set["limit"], &Value::from(Vec::<Value>::new()))
    );
    let wait = "insert into wakeq.limit_waits (event_id, canvas_id, name, due)
                values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'customer:7', now())";
    service.stage.execute(wait).await;
    let used = "insert into wakeq.limit_states (canvas_id, name)
                values ('00000000-0000-0000-0000-000000000000', 'customer:7')";
    service.stage.execute(used).await;
    let shown = squeezed(&terminal.prints(&["limits", "show", "customer"]).await);
    assert!(shown.contains("customer:7 0 1 -"), "{shown}");
    let emit = ["emit", "greet", "1", "--limit", "customer:7"];
    for terminal in [terminal, Terminal::wide(&service).await] {
        let refused = terminal.complains(6, &emit).await;
        assert!(refused.contains("wait for a place of the limit customer:7"), "{refused}");
        terminal.prints(&["emit", "greet", "1", "--limit", "customer:8"]).await;
    }
    let canvas = OTHER.to_string();
    let elsewhere = [&emit[..], &["--canvas", &canvas]].concat();
    let terminal = Terminal::beside(&service);
    terminal.prints(&elsewhere).await;
    // As if each had found no place.
    let wait = "insert into wakeq.limit_waits (event_id, canvas_id, name, due)
                select id, canvas_id, options -> 'limits' ->> 0, now() from wakeq.events_v2;
                update wakeq.events_v2 set starts_at = now()";
    service.stage.execute(wait).await;
    for (limit, options, found) in [
        ("customer:8", &[][..], "2 events of 2 examined\n"),
        ("customer:7", &[], "0 events of 0 examined\n"),
        ("customer:7", &["--canvas", canvas.as_str()], "1 event of 1 examined\n"),
    ] {
        let count = [&["events", "count", "--waits-for", limit][..], options].concat();
        assert_eq!(terminal.prints(&count).await, found, "{count:?}");
    }
    terminal.refuses(&[("events list --waits-for a,b", 2, "a limit is named")]).await;
    let dry = ["operations", "begin", "cancel", "--waits-for", "customer:8", "--dry-run", "--json"];
    let preview: Value = serde_json::from_str(&terminal.raw(&dry).await).unwrap();
    assert_eq!(preview["count"], 2, "{preview}");
    service.stop().await;
}
