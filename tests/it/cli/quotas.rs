//! `wakeq quotas` on the database and against a server: the same output; a key of one canvas sets
//! none.

use wakeq::CanvasId;
use wakeq_service::access::{Reach, Scope};

use super::Terminal;
use crate::service::{Service, make_key};

/// What is typed, and what is printed.
const SESSION: &[(&str, &str)] = &[
    (
        "quotas show",
        "QUOTA          USED        LIMIT  SET\n\
         events            0      1000000\n\
         event-bytes       0   8589934592\n\
         objects           0      1000000\n\
         log-streams       0      1000000\n\
         log-bytes         0  34359738368\n\
         entities          0       250000\n\
         entity-events     0      1000000\n\
         crons             0         1000\n\
         cron-ticks        0         6000\n\
         keys              1         1000\n\
         targets           0         1000\n",
    ),
    ("quotas set crons 0", "crons: the canvas may keep 0\n"),
    ("quotas unset crons", "crons was unset: the canvas may keep 1000, like every canvas\n"),
    ("quotas unset crons", "crons was not set: the canvas may keep 1000, like every canvas\n"),
];

async fn plays(terminal: &Terminal) {
    for (line, expected) in SESSION {
        let arguments: Vec<&str> = line.split(' ').collect();
        assert_eq!(terminal.prints(&arguments).await, *expected, "{line}");
    }
    for (line, code, words) in [
        ("quotas set nonsense 1", 2, "one of events"),
        ("quotas set crons 1000000000000001", 2, "at most"),
        ("quotas set crons", 2, "<LIMIT>"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let complaint = terminal.complains(code, &arguments).await;
        assert!(complaint.contains(words), "{line}: {complaint}");
    }
    terminal.prints(&["quotas", "set", "crons", "0"]).await;
    let complaint = terminal.complains(5, &["cron", "put", "nightly", "0 0 1 1 *"]).await;
    assert!(complaint.contains("`crons` is 0"), "{complaint}");
}

#[tokio::test]
async fn quotas_are_set_on_the_database() {
    let service = Service::start().await;
    let terminal = Terminal::on(&service.stage.database).set("WAKEQ_NOTIFIER", "local");
    plays(&terminal).await;
    service.stop().await;
}

#[tokio::test]
async fn a_server_sets_quotas_only_for_keys_of_every_canvas() {
    let service = Service::start().await;
    let of = |key: &str| Terminal::with_key(&service, key);
    plays(&of(&make_key(&service.access, "ada", Reach::EveryCanvas, &Scope::ALL).await)).await;
    let tenant = of(&service.key);
    for arguments in [&["quotas", "set", "crons", "5000"][..], &["quotas", "unset", "crons"]] {
        let complaint = tenant.complains(4, arguments).await;
        assert!(complaint.contains("reaches every canvas"), "{complaint}");
    }
    let shown = tenant.prints(&["quotas", "show"]).await;
    assert!(shown.contains("crons             0            0  for this canvas"), "{shown}");
    let other = service.key("other", CanvasId(uuid::Uuid::from_u128(7)), &Scope::ALL).await;
    tenant_of_another(&service, &other).await;
    service.stop().await;
}

/// The other canvas has the default quotas.
async fn tenant_of_another(service: &Service, key: &str) {
    let terminal = Terminal::with_key(service, key);
    let canvas = uuid::Uuid::from_u128(7).to_string();
    let shown = terminal.prints(&["quotas", "show", "--canvas", &canvas]).await;
    assert!(!shown.contains("for this canvas"), "{shown}");
}
