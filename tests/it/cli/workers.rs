//! `wakeq workers` on the database and against a server: the same output.

use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::service::Service;

/// A worker at work, one that stops, and one that was killed.
const FILL: &str = "
    insert into wakeq.workers (name, instance, host, pid, release, build, capacity, running, runs, handler_count, handlers,
                               has_targets, seen_at, is_stopping)
    values ('mail-1', '00000000-0000-4000-8000-000000000001', 'host-a', 7, '0.1.0', '7c9e6679', 64, 1,
            '[{\"event\": \"00000000-0000-4000-8000-00000000000a\", \"canvas\": \"00000000-0000-4000-8000-000000000007\",
               \"handler\": \"WORKER/send-mail/_\", \"since\": \"2026-01-31T08:00:00Z\"}]',
            1003, '{WORKER/send-mail/_,WORKER/index/_}', true, now(), false),
           ('mail-2', '00000000-0000-4000-8000-000000000002', 'host-b', 7, '0.1.0', null, 8, 0, '[]', 0, '{}', false, now(), true),
           ('mail-3', '00000000-0000-4000-8000-000000000003', null, null, '0.0.9', null, 8, 12, '[]', 0, '{}', false,
            now() - interval '1 hour', false);";

/// What is typed, and what is printed.
const SESSION: &str = "\
$ workers list
WORKER  RELEASE           STATE     RUNNING  CAPACITY  SEEN                  HOST
mail-1  0.1.0 (7c9e6679)  working         1        64  <time>  host-a
mail-2  0.1.0             stopping        0         8  <time>  host-b
mail-3  0.0.9             lost           12         8  <time>  -
$ workers show mail-1
worker    mail-1
instance  <id>
state     working, last seen <time>
started   <time>
host      host-a, process 7
release   0.1.0 (7c9e6679)
running   1 of 64
handler   WORKER/send-mail/_
handler   WORKER/index/_
handler   and 1001 more
targets   it also calls HTTP targets
EVENT                                 SINCE                 CANVAS                                HANDLER
<id>  <time>  <id>  WORKER/send-mail/_
$ workers show mail-3 --instance 00000000-0000-4000-8000-000000000003
worker    mail-3
instance  <id>
state     lost, last seen <time>
started   <time>
host      -
release   0.0.9
running   12 of 8
it runs nothing
";

async fn plays(terminal: &Terminal) {
    terminal.plays(SESSION).await;
    let json = terminal.prints(&["workers", "list", "--json", "--limit", "1"]);
    assert!(json.await.contains("\"name\": \"mail-1\""));
    let unknown = "no worker mail-4 was seen within a day: `wakeq workers list` shows those that were";
    terminal
        .refuses(&[("workers show mail-4", 3, unknown), ("workers show a/b", 2, "not a valid name")])
        .await;
}

#[tokio::test]
async fn workers_are_shown_on_the_database() {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    plays(&Terminal::beside(&service)).await;
    service.stage.execute("delete from wakeq.workers").await;
    assert_eq!(Terminal::beside(&service).prints(&["workers", "list"]).await, "no workers\n");
    service.stop().await;
}

/// Whoever may read one canvas only sees no worker.
#[tokio::test]
async fn workers_are_shown_by_a_server() {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    plays(&Terminal::wide(&service).await).await;
    let of_one = Terminal::with_key(&service, &service.key("ada", CanvasId::DEFAULT, &Scope::ALL).await);
    of_one.refuses(&[("workers list", 4, "reaches every canvas")]).await;
    service.stop().await;
}
