//! Connections: they are reused, checked each time, counted, refused on bad TLS, and never go
//! through a proxy.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use wakeq::CanvasId;
use wakeq::targets::{Target, TargetPolicy};
use wakeq_service::delivery::{Deliverer, DeliveryConfig, DeliveryOutcome};

use super::names::Names;
use super::servers::{Answer, Server, authority};
use super::{UNREACHED, config, deliver, deliver_on, deliverer, failure, target};

const OURS: CanvasId = CanvasId(uuid::Uuid::from_u128(1));
const THEIRS: CanvasId = CanvasId(uuid::Uuid::from_u128(2));
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const OK_AND_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

fn with_authority(names: &Arc<Names>) -> DeliveryConfig {
    DeliveryConfig { authorities: vec![authority()], ..config(names) }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = Server::start(Answer::KeepAlive(OK)).await;
    let (deliverer, target) = (deliverer(), target(server.url()));
    for _ in 0..10 {
        assert_eq!(deliver(&deliverer, &target).await, DeliveryOutcome::Completed);
    }
    assert_eq!((server.requests().len(), server.connections() as u64), (10, deliverer.connects()));
    // Usually one, but on a busy machine an idle connection may time out between two deliveries.
    assert!(server.connections() < 10, "each had a connection of its own");
}

/// A receiver may close a kept connection just as it is used again: the same request then goes once
/// more, on a new connection. Once an answer has begun, or on a new connection, it does not.
// Shows: TARGET-15
#[tokio::test]
async fn a_connection_that_was_closed_in_passing_costs_no_attempt() {
    let (deliverer, canvases) = (deliverer(), [OURS, THEIRS]);
    for canvas in canvases {
        let server = Server::start(Answer::OneMore(OK, "")).await;
        let target = target(server.url());
        for _ in 0..6 {
            assert_eq!(deliver_on(&deliverer, &target, canvas).await, DeliveryOutcome::Completed);
        }
        // Usually nine, but on a busy machine an idle connection may time out between deliveries.
        assert!((6..=12).contains(&server.requests().len()), "{}", server.requests().len());
        let begun = Server::start(Answer::OneMore(OK, "HTTP/1.1 2")).await;
        let closing = Server::start(Answer::Bytes(Vec::new())).await;
        let (begun_target, closing_target) = (super::target(begun.url()), super::target(closing.url()));
        assert_eq!(deliver_on(&deliverer, &begun_target, canvas).await, DeliveryOutcome::Completed);
        for target in [&begun_target, &closing_target] {
            let delivered = deliver_on(&deliverer, target, canvas).await;
            if begun.connections() == 1 {
                failure(delivered);
            }
        }
        assert_eq!((begun.requests().len(), closing.requests().len()), (2, 1));
    }
}

/// A name that resolves to an allowed address and then to another: each connection is checked, and
/// goes to the address that was checked.
#[tokio::test]
async fn dns_rebinding_reaches_no_forbidden_address() {
    let names = Arc::new(Names::default());
    let server = Server::start(Answer::Bytes(OK_AND_CLOSE.to_vec())).await;
    names.set("rebound.example", &["127.0.0.1", "127.0.0.2", "127.0.0.1,127.0.0.2", "127.0.0.1"]);
    let deliverer = Deliverer::new(config(&names)).unwrap();
    let target = target(format!("http://rebound.example:{}/", server.address.port()).parse().unwrap());
    assert_eq!(deliver(&deliverer, &target).await, DeliveryOutcome::Completed);
    for _ in 0..2 {
        let message = failure(deliver(&deliverer, &target).await);
        assert!(message.contains(UNREACHED) && !message.contains("127.0.0.2"), "{message}");
    }
    assert_eq!(deliver(&deliverer, &target).await, DeliveryOutcome::Completed);
    assert_eq!(names.asked(), vec!["rebound.example"; 4], "once for each connection, and never again");
    assert_eq!((deliverer.connects(), server.connections()), (2, 2));
}

#[tokio::test]
async fn a_host_that_can_t_be_reached_is_an_operational_error() {
    let names = Arc::new(Names::default());
    let deliverer = Deliverer::new(config(&names)).unwrap();
    let closed = closed();
    let message = failure(deliver(&deliverer, &target(format!("http://{closed}/").parse().unwrap())).await);
    assert!(message.contains(UNREACHED), "{message}");
    assert_eq!(deliverer.connects(), 1, "it was tried");
}

/// A message does not reveal which internal names exist, where they lead, or what answers there.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn errors_do_not_reveal_internal_hosts() {
    let names = Arc::new(Names::default());
    let deliverer = Deliverer::new(config(&names)).unwrap();
    let (closed, no_tls) = (closed(), Server::start(Answer::Bytes(OK_AND_CLOSE.to_vec())).await);
    for (name, addresses) in [
        ("empty.example", ""),
        ("private.example", "10.0.0.1"),
        ("loopback.example", "127.0.0.2"),
        ("metadata.example", "169.254.169.254"),
        ("linked.example", "fe80::1"),
        ("both.example", "1.1.1.1,10.0.0.1"),
        ("allowed.example", "127.0.0.1"),
    ] {
        names.set(name, &[addresses]);
    }
    let mut messages = Vec::new();
    for url in [
        "http://none.example/".to_owned(),
        "http://empty.example/".to_owned(),
        "http://private.example/".to_owned(),
        "https://loopback.example/".to_owned(),
        "http://metadata.example/".to_owned(),
        "http://linked.example/".to_owned(),
        "http://both.example/".to_owned(),
        format!("http://allowed.example:{}/", closed.port()),
        format!("https://allowed.example:{}/", no_tls.address.port()),
    ] {
        messages.push(failure(deliver(&deliverer, &target(url.parse().unwrap())).await));
    }
    assert!(messages[0].contains(UNREACHED), "{messages:?}");
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
}

/// Delivers to `inside.example`, with these permissions, for the first canvas, whose own it is, and
/// for the second, whose deliveries fail with this message and do not arrive.
async fn check_is_of_one_canvas(server: &Server, allow: &[String], refusal: &str) -> Deliverer {
    let names = Arc::new(Names::default());
    names.set("inside.example", &["127.0.0.1"]);
    let allow = allow.iter().map(|permission| permission.parse().unwrap()).collect();
    let deliverer = Deliverer::new(DeliveryConfig { allow, ..config(&names) }).unwrap();
    let target = target(format!("http://inside.example:{}/", server.address.port()).parse().unwrap());
    for _ in 0..2 {
        assert_eq!(deliver_on(&deliverer, &target, OURS).await, DeliveryOutcome::Completed);
        let message = failure(deliver_on(&deliverer, &target, THEIRS).await);
        assert!(message.contains(refusal), "{message}");
    }
    assert_eq!(server.requests().len(), 2, "nothing of the other canvas came");
    deliverer
}

/// An address allowed for one canvas is not for another: neither on a new connection, nor on one
/// that is open already.
#[tokio::test]
async fn a_connection_of_one_canvas_is_not_anothers() {
    let server = Server::start(Answer::KeepAlive(OK)).await;
    let port = server.address.port();
    let allow = [format!("{OURS}=127.0.0.1:{port}")];
    let deliverer = check_is_of_one_canvas(&server, &allow, &format!("port {port} is refused")).await;
    let by_address = format!("http://127.0.0.1:{port}/").parse().unwrap();
    assert!(deliverer.check(OURS, &by_address).is_ok() && deliverer.check(THEIRS, &by_address).is_err());
}

/// The usual ports need no permission of their own, so that only the connection itself can keep the
/// other canvas out.
#[tokio::test]
async fn an_open_connection_at_a_usual_port_is_not_anothers() {
    let server = Server::start(Answer::KeepAlive(OK)).await;
    let port = server.address.port();
    let allow = [format!("{OURS}=127.0.0.1:{port}"), format!("*=public:{port}")];
    check_is_of_one_canvas(&server, &allow, UNREACHED).await;
}

/// A port that is closed.
fn closed() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// There is one connection slot, which a target that does not answer holds for longer than the
/// other target's time-out.
#[tokio::test]
async fn waiting_for_a_connection_slot_does_not_use_up_the_targets_timeout() {
    let silent = Server::start(Answer::Silence).await;
    let server = Server::start(Answer::Bytes(OK_AND_CLOSE.to_vec())).await;
    let deliverer = Deliverer::new(DeliveryConfig { connections_max: 1, ..config(&Arc::default()) }).unwrap();
    let within = |url, timeout_ms| {
        let policy = TargetPolicy { timeout: Duration::from_millis(timeout_ms), ..TargetPolicy::default() };
        Target { policy, ..target(url) }
    };
    let (first, second) = (within(silent.url(), 1500), within(server.url(), 1000));
    let (first, second) = tokio::join!(deliver(&deliverer, &first), deliver(&deliverer, &second));
    assert!(failure(first).contains("did not answer within 1.5s"));
    assert_eq!((second, silent.connections()), (DeliveryOutcome::Completed, 1));
}

#[tokio::test]
async fn tls_requires_a_certificate_for_the_host() {
    let names = Arc::new(Names::default());
    names.set("target.example", &["127.0.0.1"]);
    names.set("other.example", &["127.0.0.1"]);
    let server = Server::start_tls(Answer::KeepAlive(OK)).await;
    let trusting = Deliverer::new(with_authority(&names)).unwrap();
    assert_eq!(deliver(&trusting, &target(server.tls_url())).await, DeliveryOutcome::Completed);
    let dotted = server.tls_url().as_str().replace(".example", ".example.");
    names.set("target.example.", &["127.0.0.1"]);
    assert_eq!(deliver(&trusting, &target(dotted.parse().unwrap())).await, DeliveryOutcome::Completed);
    assert_eq!(server.requests().len(), 2);

    let check = async |deliverer: &Deliverer, url: String, part: &str| {
        let message = failure(deliver(deliverer, &target(url.parse().unwrap())).await);
        // What is wrong at an internal address goes only to the operator's log; a test of `tls`
        // checks the wording.
        assert!(message.contains(UNREACHED) && !message.contains(part), "{url}: {message}");
        // The name in the certificate: a tenant must not learn it of a machine that it can't see
        // otherwise.
        assert!(!message.contains("target.example"), "{url}: {message}");
    };
    let strict = Deliverer::new(config(&names)).unwrap();
    check(&strict, server.tls_url().to_string(), "the issuer of its certificate is unknown").await;
    let other = server.tls_url().as_str().replace("target.example", "other.example");
    check(&trusting, other, "not valid for this host").await;
    let plain = Server::start(Answer::Greeting("SSH-2.0-OpenSSH_9.2\r\n")).await;
    check(&trusting, format!("https://target.example:{}/", plain.address.port()), "its answer is not TLS")
        .await;
    assert_eq!(server.requests().len(), 2, "nothing was sent to a server that is not trusted");

    let unreadable = DeliveryConfig { authorities: vec![vec![1, 2, 3]], ..config(&names) };
    assert!(Deliverer::new(unreadable).unwrap_err().to_string().contains("give it as DER"));
}

/// A proxy from the environment is ignored: it would resolve and connect unchecked.
#[tokio::test]
async fn no_proxy_is_used() {
    let proxy = Server::start(Answer::Bytes(OK_AND_CLOSE.to_vec())).await;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", "targets::delivery::connections::a_connection_is_used_again"]);
    for variable in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(variable, format!("http://{}", proxy.address));
    }
    for variable in ["no_proxy", "NO_PROXY"] {
        child.env_remove(variable);
    }
    let output = child.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(proxy.connections(), 0);
}
