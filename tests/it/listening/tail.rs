//! `wakeq tail`, as a process: on Google's Pub/Sub emulator or ours, and on a server.

use wakeq::CanvasId;
use wakeq::notify::create_topics;
use wakeq_service::server::HttpConfig;
use wakeq_testbed::TestDatabase;

use super::{on, subscriptions};
use crate::cli::Terminal;
use crate::processes::work::Process;
use crate::support::brokers::Broker;
use crate::support::service::Service;
use crate::support::{TIMEOUT, database};

const ON: (&str, &str) = ("WAKEQ_BROADCAST", "1");

/// A command that emits and ends at once is heard all the same.
// Shows: DRV-02
#[tokio::test]
async fn it_prints_what_other_processes_emit_until_it_is_told_to_stop() {
    let mut configs = vec![Broker::pubsub_config("tail").await];
    configs.extend(Broker::google_config("tail").await);
    let database: TestDatabase = database().await;
    for config in configs {
        let config = on(config);
        create_topics(&config).await.unwrap();
        let mut tail = Process::stock_with(&["tail", "*:page:*"], database.url(), Some(&config), &[ON]);
        tail.says("listening to *:page:*").await;
        assert_eq!(subscriptions(&config).await.len(), 1);
        let terminal = Terminal::on(&database).with_pubsub(&config).set(ON.0, ON.1);
        for target in ["mail", "page/view", "page/view/mobile"] {
            terminal.run(&["emit", target, r#"{"path": "/"}"#]).await;
        }
        let first = tail.says(":page:view").await;
        let second = tail.says(":page:view").await;
        let topic = format!("{}:page:view", CanvasId::DEFAULT);
        let mut printed = [&first, &second].map(|line| line.split_once("  ").unwrap().1.to_owned());
        printed.sort();
        assert_eq!(
            printed,
            [format!("{topic}  {{\"path\": \"/\"}}"), format!("{topic}/mobile  {{\"path\": \"/\"}}")]
        );
        tail.child.interrupt(TIMEOUT).await.unwrap();
        assert_eq!(tail.ends("").await.0, Some(0));
        assert_eq!(subscriptions(&config).await, [], "deleted before the process ended");
    }
}

// Shows: DRV-18
#[tokio::test]
async fn tail_listens_to_a_server_and_stops_after_count_events() {
    let service = Service::broadcasting(HttpConfig::default()).await;
    let server = format!("http://{}", service.address);
    let more = [("WAKEQ_SERVER", server.as_str()), ("WAKEQ_KEY", service.key.as_str())];
    let arguments = ["tail", "*:WORKER:*", "--json", "--count", "2"];
    let mut tail = Process::stock_with(&arguments, service.stage.database.url(), None, &more);
    tail.says("listening to").await;
    let ids = service.stage.emit_many("greet", 2).await;
    for (id, index) in ids.iter().zip(0..) {
        let line = tail.says(&id.to_string()).await;
        let printed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&printed["name"], &printed["value"]), (&"greet".into(), &index.into()));
    }
    assert_eq!(tail.ends("").await.0, Some(0));
    service.stop().await;
}

#[tokio::test]
async fn tail_reports_errors_before_it_subscribes() {
    let config = Broker::pubsub_config("tail-off").await;
    let terminal = Terminal::without_variables().with_pubsub(&config);
    let off = terminal.complains(3, &["tail"]).await;
    assert!(off.contains("WAKEQ_BROADCAST=1"), "{off}");
    let missing = terminal.complains(6, &["--broadcast", "tail"]).await;
    assert!(
        missing.contains("-broadcast does not exist") && missing.contains("wakeq topics create"),
        "{missing}"
    );
    let bad = terminal.complains(2, &["tail", "*:[page:*"]).await;
    assert!(bad.contains("the [ at character 3 is not closed"), "{bad}");
    let local = terminal.complains(2, &["--notifier", "local", "--broadcast", "tail"]).await;
    assert!(local.contains("ask its server"), "{local}");
}
