//! `wakeq queues` on the database and against a server: the same output.

use uuid::Uuid;
use wakeq_service::access::{Reach, Scope};

use super::Terminal;
use crate::service::{Service, make_key};

/// What is typed, and what is printed.
const SESSION: &[(&str, &str)] = &[
    ("queues list", "no queues\n"),
    ("queues put email_events .*:email_event:.* --in-flight-max 9", "queue email_events is registered\n"),
    (
        "queues put email_events .*:email_event:.* --in-flight-max 9",
        "queue email_events was already registered like this\n",
    ),
    (
        "queues list",
        "QUEUE         WEIGHT  IN FLIGHT  PROCESSED BY  PATTERNS\n\
         email_events       1          9  functions     .*:email_event:.*\n",
    ),
    ("emit email_event/opened 42 --only-to-queues", "<id>  (copied into 1 queue)\n"),
    (
        "events list",
        "EVENT                                 STATE  DUE                   RETRIES  LOSSES  HANDLER\n\
                     <id>  ready  <time>        0       0  email_event/opened/_ in email_events\n",
    ),
    (
        "queues facets email_events",
        "CANVAS                                WAITING  RUNNING  TURN  DUE SINCE             WEIGHT  IN FLIGHT\n\
         <id>        1        0     -  <time>       -  -\n",
    ),
    ("depth --queue email_events", "1 event due and free to run, 0 canvases in the rotation\n"),
    ("depth email_event/opened", "0 events due and free to run\n"),
    ("queues set-facet email_events --weight 0", "canvas <id> in queue email_events: paused\n"),
    ("depth --queue email_events", "0 events due and free to run, 0 canvases in the rotation\n"),
    (
        "queues set-facet email_events --weight 3",
        "canvas <id> in queue email_events: 3 events in each round\n1 waiting event woken\n",
    ),
    (
        "queues show email_events",
        "queue     email_events\n\
         pattern   .*:email_event:.*\n\
         canvases  1 event in each round; 9 in flight\n\
         target    none: functions of workers process it\n\
         made      <time> by cli:ada\n\
         changed   <time> by cli:ada\n\
         canvas    <id>: 3 events in each round\n",
    ),
    (
        "queues delete email_events",
        "queue email_events receives no more copies, and is removed after the last one\n",
    ),
    ("queues delete email_events --waiting drop", "queue email_events is removed\n"),
];

async fn plays(terminal: &Terminal) {
    for (line, expected) in SESSION {
        let arguments: Vec<&str> = line.split(' ').collect();
        let printed = terminal.prints(&arguments).await.replace("key:ada", "cli:ada");
        // A command with a notifier that wakes nothing leaves the rotation to the probe.
        let printed =
            printed.replace("     1  <time>", "     -  <time>").replace("1 canvas in", "0 canvases in");
        assert_eq!(printed, *expected, "{line}");
    }
    for (line, code, words) in [
        ("queues show email_events", 3, ""),
        ("queues facets email_events", 3, ""),
        ("queues put x (", 2, "pattern 1 is not valid"),
        ("queues put x", 2, "<PATTERN>"),
        ("queues put x y --retries 3", 2, "also give --url or --pull"),
        ("queues put x y --weight 1001", 2, "0 to 1,000"),
        ("queues set-facet x --weight 1 --canvas ffffffff-ffff-ffff-ffff-ffffffffffff", 2, "largest uuid"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let complaint = terminal.complains(code, &arguments).await;
        assert!(complaint.contains(words), "{line}: {complaint}");
    }
}

// Shows: DRV-06
#[tokio::test]
async fn queues_are_registered_on_the_database() {
    let service = Service::start().await;
    let terminal = Terminal::on(&service.stage.database).set("WAKEQ_NOTIFIER", "local");
    plays(&terminal).await;
    service.stop().await;
}

#[tokio::test]
async fn queues_are_registered_by_a_server() {
    let service = Service::start().await;
    let of = |key: &str| Terminal::with_key(&service, key);
    plays(&of(&make_key(&service.access, "ada", Reach::EveryCanvas, &Scope::ALL).await)).await;
    let of_one = of(&service.key("ada", wakeq::CanvasId(Uuid::nil()), &Scope::ALL).await);
    let complaint = of_one.complains(4, &["queues", "list"]).await;
    assert!(complaint.contains("reaches every canvas"), "{complaint}");
    service.stop().await;
}
