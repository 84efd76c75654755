//! The stock binary in push mode: what it refuses, and that a kill in the middle of a push costs no
//! event.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;

use wakeq::Timing;
use wakeq::notify::{Notifier, PubSub};

use super::whole::{emulator, keys_url, pubsub, subscribe};
use super::{PUSH_AUDIENCE, PUSHER, empty};
use crate::cli::Terminal;
use crate::processes::work::Process;
use crate::support::receiver::Receiver;
use crate::support::{Stage, database, quick};

const VARIABLES: [(&str, &str); 2] =
    [("WAKEQ_PUSH_AUDIENCE", PUSH_AUDIENCE), ("WAKEQ_PUSH_ACCOUNTS", PUSHER)];

/// If the process is killed while a target handles the event, the event is sent again, with the
/// same id, and no retry is counted.
// Shows: PUSH-15
#[tokio::test]
async fn an_event_whose_process_is_killed_amid_a_push_runs_again() {
    let emulator = emulator().await;
    let config = pubsub(&emulator);
    let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(config.clone()).await.unwrap());
    let horizonless = Timing { horizon: std::time::Duration::ZERO, ..quick() };
    let stage = Stage::with(notifier, horizonless).await;
    let mut receiver = Receiver::start().await;
    let put =
        ["handlers", "put", "greet", &receiver.url, "--deliver-to", "*=127.0.0.1:1-65535", "--deliver-http"];
    let printed = Terminal::on(&stage.database).set("WAKEQ_NOTIFIER", "local").run(&put).await;
    assert_eq!(printed.code, Some(0), "{}", printed.err);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (endpoint, keys): (SocketAddr, _) = (listener.local_addr().unwrap(), keys_url(&emulator));
    drop(listener);
    let port = endpoint.port().to_string();
    let start = || {
        let variables = [
            VARIABLES[0],
            VARIABLES[1],
            ("WAKEQ_JWKS_URL", keys.as_str()),
            ("WAKEQ_DELIVER_TO", "*=127.0.0.1:1-65535"),
            ("WAKEQ_DELIVER_HTTP", "1"),
            ("WAKEQ_LISTEN", "127.0.0.1"),
            ("PORT", port.as_str()),
        ];
        Process::stock("serve", stage.database.url(), Some(&config), &variables)
    };
    let mut first = start();
    first.says("serving the API").await;
    subscribe(&emulator, endpoint, PUSH_AUDIENCE, PUSHER);
    let id = stage.emit("greet").await.to_string();
    let arrived = receiver.next().await;
    assert_eq!(arrived.header("webhook-id"), id);
    let killed = Command::new("kill").args(["-KILL", &first.child.pid().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(first.ends("").await.0, None, "it died of the signal");
    drop(arrived);
    let mut second = start();
    second.says("serving the API").await;
    let again = receiver.next().await;
    assert_eq!((again.header("webhook-id"), again.header("wakeq-attempt")), (id.as_str(), "1"));
    again.answer("200 OK", &[]);
    empty(&stage).await;
    assert_eq!(second.stop().await, Some(0));
    emulator.stop().await;
}

/// The first process fixes the deployment's horizon at zero; a process of another kind is refused.
// Shows: PUSH-11
#[tokio::test]
async fn the_horizon_of_a_push_deployment_is_zero() {
    let fresh = database().await;
    let mut process =
        Process::stock("serve", fresh.url(), None, &[VARIABLES[0], VARIABLES[1], ("PORT", "0")]);
    process.says("serving the API").await;
    assert_eq!(process.stop().await, Some(0));
    let pool = sqlx::PgPool::connect(fresh.url()).await.unwrap();
    let horizon = "select value_us from wakeq.settings where name = 'horizon'";
    assert_eq!(sqlx::query_scalar::<_, i64>(horizon).fetch_one(&pool).await.unwrap(), 0);

    let other = Stage::memory().await.0;
    let url = other.database.url();
    let all = [VARIABLES[0], VARIABLES[1], ("PORT", "0")];
    for (command, variables, words) in [
        ("serve", &all[..], "wakeq settings set --horizon 0s"),
        ("serve", &all[..1], "WAKEQ_PUSH_ACCOUNTS"),
        ("serve", &all[1..], "WAKEQ_PUSH_AUDIENCE"),
        ("serve", &[all[0], all[1], ("WAKEQ_NOTIFIER", "local")], "need Pub/Sub"),
        ("serve", &[all[0], all[1], ("WAKEQ_NO_TARGETS", "1"), ("WAKEQ_HORIZON", "0s")], "horizon"),
        ("all", &all, "start `serve`"),
    ] {
        let mut process = Process::stock(command, url, None, variables);
        let line = process.says("the process exits").await;
        assert!(line.contains(words), "{command}: {line}");
        assert_eq!(process.ends("").await.0, Some(1));
    }
}
