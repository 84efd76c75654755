//! The corpus of forbidden targets: however one is written, the connector opens no connection. The
//! listeners are raw sockets, because the tests look for connections.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use wakeq::CanvasId;
use wakeq::targets::{Target, TargetUrl};
use wakeq_service::delivery::{Deliverer, DeliveryOutcome};

use super::names::Names;
use super::servers::{Answer, Server};
use super::{UNREACHED, config, deliver, failure, target};

const CORPUS: &str = include_str!("corpus.txt");
const CASES_MIN: usize = 150;

/// One line of the corpus.
struct Case {
    line: &'static str,
    redirect: Option<u16>,
    url: String,
    addresses: Option<String>,
    part: &'static str,
}

impl Case {
    fn parse(line: &'static str, port: u16) -> Self {
        let (given, part) = line.rsplit_once(" -> ").unwrap();
        let redirect = given.split_once(' ').and_then(|(status, _)| status.parse().ok());
        let given = if redirect.is_some() { &given[4..] } else { given };
        let (url, addresses) = match given.split_once(" =") {
            Some((url, addresses)) => (url, Some(addresses.trim().to_owned())),
            None => (given, None),
        };
        let mut url = url.replace("{port}", &port.to_string());
        for (escape, character) in [
            ("\\t", "\t"),
            ("\\n", "\n"),
            ("\\r", "\r"),
            ("\\0", "\0"),
            ("\\u{ad}", "\u{ad}"),
            ("\\u{200b}", "\u{200b}"),
            ("\\u{2060}", "\u{2060}"),
        ] {
            url = url.replace(escape, character);
        }
        Self { line, redirect, url, addresses, part }
    }
}

/// A listener that is denied. Nothing is accepted until the end, when the first connection in its
/// backlog is examined.
async fn denied_listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Asserts that the first connection that the listener ever got is the test's own.
async fn assert_untouched(listener: &TcpListener) {
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (_, first) = listener.accept().await.unwrap();
    assert_eq!(first, ours.local_addr().unwrap(), "somebody had connected before");
}

#[tokio::test]
async fn nothing_is_sent_to_forbidden_addresses() {
    let (listener, port) = denied_listener().await;
    let names = Arc::new(Names::default());
    let deliverer = Deliverer::new(config(&names)).unwrap();
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases: Vec<_> = lines.map(|line| Case::parse(line, port)).collect();
    assert!(cases.len() >= CASES_MIN, "{} cases", cases.len());
    let (mut wrong, mut by) = (Vec::new(), BTreeMap::<_, u32>::new());
    for case in &cases {
        let before = deliverer.connects();
        let (stage, said) = refused(&deliverer, &names, case).await;
        *by.entry(stage).or_default() += 1;
        let connects = deliverer.connects() - before;
        // One connection to the server that redirects, and none after that.
        let expected = u64::from(case.redirect.is_some());
        // The message does not say where a name leads.
        let part = if stage == "connector" && case.addresses.is_some() { UNREACHED } else { case.part };
        if !said.contains(part) || connects != expected {
            wrong.push(format!("{}\n    {connects} connections, by {stage}: {said}", case.line));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert_untouched(&listener).await;
    let literal = names.asked().into_iter().find(|name| is_address(name));
    assert_eq!(literal, None, "the resolver was asked for an address");
    println!("{} cases: {by:?}", cases.len());
}

/// The stage that refused it, and its message.
async fn refused(deliverer: &Deliverer, names: &Arc<Names>, case: &Case) -> (&'static str, String) {
    if let Some(status) = case.redirect {
        let answer =
            format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", case.url);
        let server = Server::start(Answer::Bytes(answer.into_bytes())).await;
        return ("not following", failure(deliver(deliverer, &target(server.url())).await));
    }
    let target: Target = match case.url.parse::<TargetUrl>() {
        Ok(url) => target(url),
        Err(error) => return ("reading", error.to_string()),
    };
    if let Some(addresses) = &case.addresses {
        names.set(&target.url.host().to_string(), &[addresses]);
    }
    let checked = deliverer.check(CanvasId::DEFAULT, &target.url);
    let said = failure(deliver(deliverer, &target).await);
    match checked {
        Err(refused) => {
            assert!(said.ends_with(&refused.to_string()), "{}: {said}", case.line);
            ("check", said)
        }
        Ok(()) => ("connector", said),
    }
}

/// 127.0.0.2 is denied, 127.0.0.1 is allowed: on the same port, only the latter sees a connection.
#[tokio::test]
async fn an_address_next_to_an_allowed_one_receives_nothing() {
    let answer = Answer::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec());
    let allowed = Server::start(answer).await;
    let port = allowed.address.port();
    let denied = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), port)).await.unwrap();
    let names = Arc::new(Names::default());
    names.set("denied.example", &["127.0.0.2"]);
    names.set("allowed.example", &["127.0.0.1"]);
    let deliverer = Deliverer::new(config(&names)).unwrap();
    for (host, may) in [
        ("127.0.0.1", true),
        ("127.0.0.2", false),
        ("2130706433", true),
        ("2130706434", false),
        ("[::ffff:127.0.0.1]", true),
        ("[::ffff:127.0.0.2]", false),
        ("allowed.example", true),
        ("denied.example", false),
    ] {
        let url: TargetUrl = format!("http://{host}:{port}/").parse().unwrap();
        let delivered = deliver(&deliverer, &target(url)).await;
        assert_eq!(delivered == DeliveryOutcome::Completed, may, "{host}: {delivered:?}");
    }
    assert_eq!((deliverer.connects(), allowed.connections()), (4, 4));
    assert_untouched(&denied).await;
}

/// Nothing in an answer but its status has an effect.
#[tokio::test]
async fn no_header_of_an_answer_is_followed() {
    let (listener, port) = denied_listener().await;
    let elsewhere = format!("http://127.0.0.2:{port}/");
    let answer = format!(
        "HTTP/1.1 200 OK\r\nlocation: {elsewhere}\r\ncontent-location: {elsewhere}\r\nrefresh: 0; url={elsewhere}\r\n\
         alt-svc: http/1.1=\"127.0.0.2:{port}\"\r\nlink: <{elsewhere}>; rel=preload\r\nset-cookie: a=b\r\n\
         content-length: 0\r\n\r\n"
    );
    let server = Server::start(Answer::KeepAlive(answer.leak())).await;
    let deliverer = super::deliverer();
    for _ in 0..2 {
        assert_eq!(deliver(&deliverer, &target(server.url())).await, DeliveryOutcome::Completed);
    }
    assert!(!server.requests()[1].head.contains("cookie"), "nothing is kept of an answer");
    assert_eq!(deliverer.connects(), server.connections() as u64);
    assert_untouched(&listener).await;
}

/// Whether a name is an address, in any notation that a system resolver would accept.
fn is_address(name: &str) -> bool {
    let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_hex =
        last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    name.contains(':') || is_hex || last.bytes().all(|byte| byte.is_ascii_digit())
}
