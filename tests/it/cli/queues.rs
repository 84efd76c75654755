//! `wakeq queues` on the database and against a server: the same output.

use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::{Terminal, session};
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ queues list
no queues
$ queues put email_events .*:email_event:.* --in-flight-max 9
queue email_events is registered
$ queues put email_events .*:email_event:.* --in-flight-max 9
queue email_events was already registered like this
$ queues list
QUEUE         WEIGHT  IN FLIGHT  PROCESSED BY  PATTERNS
email_events       1          9  functions     .*:email_event:.*
$ emit email_event/opened 42 --only-to-queues
<id>  (copied into 1 queue)
$ events list
EVENT                                 STATE  DUE                   RETRIES  LOSSES  HANDLER
<id>  ready  <time>        0       0  email_event/opened/_ in email_events
$ queues facets email_events
CANVAS                                WAITING  RUNNING  TURN  DUE SINCE             WEIGHT  IN FLIGHT
<id>        1        0     -  <time>       -  -
$ queues show-facet email_events
canvas    <id>
copies    1 waiting, 0 running
oldest    <time>
in turn   -
settings  the queue's weight
$ depth --queue email_events
1 event due and free to run, 0 canvases in the rotation
$ depth email_event/opened
0 events due and free to run
$ queues set-facet email_events --weight 0
canvas <id> in queue email_events: paused
$ depth --queue email_events
0 events due and free to run, 0 canvases in the rotation
$ queues set-facet email_events --weight 3
canvas <id> in queue email_events: 3 events in each round
1 waiting event woken
$ queues show email_events
queue     email_events
pattern   .*:email_event:.*
canvases  1 event in each round; 9 in flight
target    none: functions of workers process it
made      <time> by cli:ada
changed   <time> by cli:ada
canvas    <id>: 3 events in each round
$ queues delete email_events
queue email_events receives no more copies, and is removed after the last one
$ queues delete email_events --waiting drop
queue email_events is removed
";

async fn plays(terminal: &Terminal) {
    for (line, expected) in session(SESSION) {
        let arguments: Vec<&str> = line.split(' ').collect();
        let printed = terminal.prints(&arguments).await.replace("key:ada", "cli:ada");
        // A command with a notifier that wakes nothing leaves the rotation to the probe.
        let printed =
            printed.replace("     1  <time>", "     -  <time>").replace("1 canvas in", "0 canvases in");
        let printed = printed.replace("in turn   1", "in turn   -");
        assert_eq!(printed, expected, "{line}");
    }
    let refused = [
        ("queues show email_events", 3, ""),
        ("queues facets email_events", 3, ""),
        ("queues show-facet email_events", 3, ""),
        ("queues put x (", 2, "pattern 1 is not valid"),
        ("queues put x", 2, "<PATTERN>"),
        ("queues put x y --retries 3", 2, "also give --url or --pull"),
        ("queues put x y --weight 1001", 2, "0 to 1,000"),
        ("queues set-facet x --weight 1 --canvas ffffffff-ffff-ffff-ffff-ffffffffffff", 2, "largest uuid"),
    ];
    terminal.refuses(&refused).await;
}

// Shows: DRV-06
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn queues_are_registered_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
async fn queues_are_registered_by_a_server() {
    let service = Service::start().await;
    plays(&Terminal::wide(&service).await).await;
    let of_one = Terminal::with_key(&service, &service.key("ada", CanvasId::DEFAULT, &Scope::ALL).await);
    of_one.refuses(&[("queues list", 4, "reaches every canvas")]).await;
    service.stop().await;
}
