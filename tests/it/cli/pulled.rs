//! Pulled handlers on the command line, on the database and against a server: the same output.

use serde_json::Value;

use super::Terminal;
use crate::support::service::Service;

/// Leases the only available event; returns its id and the lease's token.
async fn lease(terminal: &Terminal) -> (String, String) {
    let as_mailer = ["handlers", "lease", "mail", "--for", "10m", "--worker", "mailer-7", "--json"];
    let printed = terminal.run(&as_mailer).await;
    let leased: Value = serde_json::from_str(&printed.out).unwrap_or_else(|_| panic!("{}", printed.err));
    let [event] = leased["events"].as_array().unwrap().as_slice() else { panic!("one event: {leased}") };
    assert_eq!(event["value"], 42);
    (event["id"].as_str().unwrap().to_owned(), event["lease"].as_str().unwrap().to_owned())
}

async fn plays(terminal: &Terminal) {
    let says = async |arguments: &[&str], expected: &str| {
        let arguments = [&["handlers"], arguments].concat();
        assert_eq!(terminal.prints(&arguments).await, expected, "{arguments:?}");
    };
    says(&["pulled"], "no pulled handlers\n").await;
    says(&["pull", "mail", "--delay", "0s"], "WORKER/mail is pulled\n").await;
    says(&["pull", "mail", "--delay", "0s"], "WORKER/mail is pulled, as before; the policy is replaced\n")
        .await;
    assert!(terminal.prints(&["handlers", "pulled"]).await.contains("WORKER/mail"));
    says(&["lease", "mail"], "no events to lease\n").await;
    assert_eq!(terminal.prints(&["workers", "programs"]).await, "no programs\n");
    terminal.prints(&["emit", "mail", "42"]).await;
    let (id, token) = lease(terminal).await;
    let programs = terminal.prints(&["workers", "programs"]).await;
    assert!(programs.contains("mailer-7  WORKER/mail  <time>"), "{programs}");
    assert!(terminal.run(&["explain", &id]).await.out.contains("mailer-7"));
    says(&["extend", "mail", &id, &token, "--for", "20m"], "event <id> is leased until <time>\n").await;
    let failed = ["release", "mail", &id, &token, "--error", "no route"];
    says(&failed, "event <id> can be leased again at once\n").await;
    let explained = terminal.run(&["explain", &id]).await.out;
    assert!(explained.contains("waits until a program leases it"), "{explained}");

    let (_, again) = lease(terminal).await;
    for (code, arguments) in [
        (5, vec!["handlers", "complete", "mail", &id, &token]),
        (2, vec!["handlers", "complete", "mail", &id, "lost"]),
        (3, vec!["handlers", "lease", "unknown"]),
        (2, vec!["handlers", "lease", "mail", "--for", "2h"]),
        (3, vec!["handlers", "unpull", "unknown"]),
    ] {
        terminal.complains(code, &arguments).await;
    }
    says(&["complete", "mail", &id, &again], "event <id> is complete\n").await;
    terminal.prints(&["emit", "mail", "42", "--keep", "1h"]).await;
    let (id, token) = lease(terminal).await;
    terminal.complains(2, &["handlers", "complete", "mail", &id, &token, "--result", "{"]).await;
    let complete = ["complete", "mail", &id, &token, "--result", r#"{"receipt":7}"#];
    says(&complete, "event <id> is complete\n").await;
    let kept = terminal.run(&["events", "show", &id]).await.out;
    assert!(kept.contains("receipt"), "{kept}");
    terminal.prints(&["emit", "mail", "42"]).await;
    let (id, token) = lease(terminal).await;
    let hopeless = ["release", "mail", &id, &token, "--error", "no such user", "--dead"];
    says(&hopeless, "event <id> is now a dead event\n").await;
    terminal.prints(&["handlers", "pull", "mail", "--keep", "completed=7days,cancelled=1day"]).await;
    terminal.prints(&["emit", "mail", "42"]).await;
    let (id, token) = lease(terminal).await;
    says(&["complete", "mail", &id, &token], "event <id> is complete\n").await;
    let kept = terminal.run(&["events", "show", &id]).await.out;
    assert!(kept.contains("mailer-7") && kept.contains("completed"), "{kept}");
    terminal.complains(2, &["handlers", "pull", "mail", "--keep", "dead=7days"]).await;
    says(&["unpull", "mail"], "events of WORKER/mail go to workers and targets again\n").await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_are_leased_on_the_database() {
    let service = Service::start().await;
    plays(&Terminal::beside(&service)).await;
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_are_leased_from_a_server() {
    let service = Service::start().await;
    plays(&Terminal::wide(&service).await).await;
    service.stop().await;
}
