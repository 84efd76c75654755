//! Copies of pulled queues on the command line, on the database and against a server: the same
//! output.

use serde_json::Value;

use super::Terminal;
use crate::support::service::Service;

/// Leases the only available copy; returns its id and the lease's token.
async fn lease(terminal: &Terminal) -> (String, String) {
    let printed = terminal.run(&["queues", "lease", "emails", "--for", "10m", "--json"]).await;
    let leased: Value = serde_json::from_str(&printed.out).unwrap_or_else(|_| panic!("{}", printed.err));
    let [copy] = leased["copies"].as_array().unwrap().as_slice() else { panic!("one copy: {leased}") };
    assert_eq!(copy["value"], 42);
    (copy["id"].as_str().unwrap().to_owned(), copy["lease"].as_str().unwrap().to_owned())
}

async fn plays(terminal: &Terminal) {
    let says = async |arguments: &[&str], expected: &str| {
        let arguments = [&["queues"], arguments].concat();
        assert_eq!(terminal.prints(&arguments).await, expected, "{arguments:?}");
    };
    terminal.prints(&["queues", "put", "emails", ":email_event:", "--pull", "--delay", "0s"]).await;
    says(&["leases", "emails"], "no leased copies\n").await;
    says(&["lease", "emails"], "no copies to lease\n").await;
    terminal.prints(&["emit", "email_event/opened", "42", "--only-to-queues"]).await;
    let (id, token) = lease(terminal).await;
    let explained = terminal.run(&["explain", &id]).await.out;
    let words = "ends when the service that leased it completes or releases it";
    assert!(explained.contains(words), "{explained}");
    let listed = terminal.run(&["queues", "leases", "emails", "--json"]).await.out;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["items"][0]["id"], Value::String(id.clone()));
    assert!(terminal.prints(&["queues", "leases", "emails"]).await.contains("email_event/opened/_"));
    says(&["extend", "emails", &id, &token, "--for", "20m"], "copy <id> is leased until <time>\n").await;
    let failed = ["release", "emails", &id, &token, "--error", "no route", "--retry", "0s"];
    says(&failed, "copy <id> can be leased again at once\n").await;
    let explained = terminal.run(&["explain", &id]).await.out;
    assert!(explained.contains("waits until a service leases it"), "{explained}");

    let (_, token) = lease(terminal).await;
    let ended = "the lease of copy <id> was ended, and the copy can be leased again\n";
    says(&["end-lease", "emails", &id], ended).await;
    for (code, arguments) in [
        (3, vec!["queues", "end-lease", "emails", &id]),
        (5, vec!["queues", "complete", "emails", &id, &token]),
        (2, vec!["queues", "complete", "emails", &id, "lost"]),
        (3, vec!["queues", "leases", "unknown"]),
        (2, vec!["queues", "lease", "emails", "--for", "2h"]),
    ] {
        terminal.complains(code, &arguments).await;
    }
    let (_, token) = lease(terminal).await;
    says(&["complete", "emails", &id, &token], "copy <id> is complete\n").await;
    says(&["leases", "emails"], "no leased copies\n").await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn copies_are_pulled_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

// Shows: DRV-26
#[tokio::test]
async fn copies_are_pulled_from_a_server() {
    let service = Service::start().await;
    plays(&Terminal::wide(&service).await).await;
    service.stop().await;
}
