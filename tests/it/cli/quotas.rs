//! `wakeq quotas` on the database and against a server: the same output; a key of one canvas sets
//! none.

use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// What is typed, and what is printed.
const SESSION: &str = "\
$ quotas show
QUOTA             USED        LIMIT  SET
events               0      1000000
event-bytes          0   8589934592
objects              0      1000000
object-bytes         0   8589934592
chosen-ids           0    100000000
idempotency-keys     0      5000000
log-streams          0      1000000
log-bytes            0  34359738368
entities             0       250000
entity-events        0      1000000
crons                0         1000
cron-ticks           0         6000
keys                 1         1000
targets              0         1000
hooks                0          100
batches              0        10000
rules                0        10000
audit-lines          1     10000000
$ quotas set crons 0
crons: the canvas may keep 0
$ quotas show crons
crons: 0 of 0, which was set for this canvas
$ quotas unset crons
crons was unset: the canvas may keep 1000, like every canvas
$ quotas unset crons
crons was not set: the canvas may keep 1000, like every canvas
$ quotas show keys
keys: 1 of 1000
";

async fn plays(terminal: &Terminal) {
    terminal.plays(SESSION).await;
    let refused = [
        ("quotas set nonsense 1", 2, "one of events"),
        ("quotas set crons 1000000000000001", 2, "at most"),
        ("quotas set crons", 2, "<LIMIT>"),
        ("quotas show nonsense", 2, "one of events"),
    ];
    terminal.refuses(&refused).await;
    terminal.prints(&["quotas", "set", "crons", "0"]).await;
    let complaint = terminal.complains(5, &["cron", "put", "nightly", "0 0 1 1 *"]).await;
    assert!(complaint.contains("`crons` is 0"), "{complaint}");
}

#[tokio::test]
async fn quotas_are_set_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
async fn a_server_sets_quotas_only_for_keys_of_every_canvas() {
    let service = Service::start().await;
    plays(&Terminal::wide(&service).await).await;
    let tenant = Terminal::with_key(&service, &service.key);
    let words = "reaches every canvas";
    tenant.refuses(&[("quotas set crons 5000", 4, words), ("quotas unset crons", 4, words)]).await;
    let shown = tenant.prints(&["quotas", "show"]).await;
    assert!(shown.contains("crons                0            0  for this canvas"), "{shown}");
    // The other canvas has the default quotas.
    let tenant = Terminal::with_key(&service, &service.key("other", OTHER, &Scope::ALL).await);
    let shown = tenant.prints(&["quotas", "show", "--canvas", &OTHER.to_string()]).await;
    assert!(!shown.contains("for this canvas"), "{shown}");
    service.stop().await;
}
