//! What becomes of every kind of answer. The table is that of docs/delivery.md.

use std::time::Duration;

use wakeq_service::delivery::DeliveryOutcome;

use super::servers::{Answer, Server};
use super::{deliver, deliverer, failure, impatient, target};

fn text(answer: &str) -> Answer {
    Answer::Bytes(answer.replace('\n', "\r\n").into_bytes())
}

fn status(status: &str) -> Answer {
    text(&format!("HTTP/1.1 {status}\ncontent-length: 5\nconnection: close\n\nhello"))
}

async fn answered(answer: Answer) -> DeliveryOutcome {
    let server = Server::start(answer).await;
    let delivered = deliver(&deliverer(), &target(server.url())).await;
    assert_eq!(server.requests().len(), 1, "one attempt is one request");
    delivered
}

async fn failed(answer: Answer) -> String {
    let message = failure(answered(answer).await);
    assert!(!message.contains("hello"), "what a target says is not repeated: {message}");
    message
}

#[track_caller]
fn check_says(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{parts:?} in: {message}");
}

#[tokio::test]
async fn every_2xx_completes() {
    for answer in [
        status("200 OK"),
        status("201 Created"),
        status("299 Whatever"),
        text("HTTP/1.1 204 No Content\n\n"),
        text("HTTP/1.0 200 OK\n\nuntil the end of the connection"),
        text("HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n5\nhello\n0\n\n"),
        text("HTTP/1.1 103 Early Hints\nlink: </a>\n\nHTTP/1.1 200 OK\ncontent-length: 0\n\n"),
    ] {
        assert_eq!(answered(answer.clone()).await, DeliveryOutcome::Completed, "{answer:?}");
    }
}

#[tokio::test]
async fn a_410_answer_means_the_target_was_removed() {
    let gone = DeliveryOutcome::Gone { reason: "the target answered 410 Gone".to_owned() };
    assert_eq!(answered(status("410 Gone")).await, gone);
}

#[tokio::test]
async fn any_other_status_is_an_operational_error() {
    for (answer, parts) in [
        ("301 Moved Permanently", ["301 Moved Permanently with 5 bytes", "redirects are not followed"]),
        ("304 Not Modified", ["304", "redirects are not followed"]),
        ("400 Bad Request", ["400 Bad Request with 5 bytes", "2xx"]),
        ("401 Unauthorized", ["401", "audience"]),
        ("403 Forbidden", ["403", "audience"]),
        ("404 Not Found", ["404", "register"]),
        ("405 Method Not Allowed", ["405", "POST"]),
        ("408 Request Timeout", ["408", "2xx"]),
        ("413 Content Too Large", ["413", "too large"]),
        ("500 Internal Server Error", ["500 Internal Server Error with 5 bytes", "2xx"]),
        ("502 Bad Gateway", ["502", "2xx"]),
        ("599 Whatever", ["answered 599 with", "2xx"]),
        ("999 Whatever", ["answered 999 with", "2xx"]),
    ] {
        check_says(&failed(status(answer)).await, &parts);
    }
    let upgrade = text("HTTP/1.1 101 Switching Protocols\nconnection: upgrade\nupgrade: echo\n\n");
    check_says(&failed(upgrade).await, &["101 Switching Protocols"]);
}

#[tokio::test]
async fn retry_after_is_honoured_by_429_and_503_alone() {
    let day = Some(Duration::from_secs(24 * 3600));
    for (first, headers, expected) in [
        ("429 Too Many Requests", "", Some(Duration::ZERO)),
        ("429 Too Many Requests", "retry-after: soon\n", Some(Duration::ZERO)),
        ("429 Too Many Requests", "retry-after: 0\n", Some(Duration::ZERO)),
        ("429 Too Many Requests", "retry-after: 120\n", Some(Duration::from_secs(120))),
        ("503 Service Unavailable", "", None),
        ("503 Service Unavailable", "Retry-After: 7\n", Some(Duration::from_secs(7))),
        ("503 Service Unavailable", "retry-after: 999999999\n", day),
        ("503 Service Unavailable", "retry-after: soon\n", None),
        (
            "429 Too Many Requests",
            "date: Sat, 31 Jan 2026 08:00:00 GMT\nretry-after: Sat, 31 Jan 2026 08:01:30 GMT\n",
            Some(Duration::from_secs(90)),
        ),
        ("503 Service Unavailable", "retry-after: Fri, 31 Dec 9999 23:59:59 GMT\n", day),
        ("500 Internal Server Error", "retry-after: 120\n", None),
        ("302 Found", "retry-after: 120\n", None),
    ] {
        let answer = text(&format!("HTTP/1.1 {first}\n{headers}content-length: 0\n\n"));
        let delivered = answered(answer).await;
        let (message, busy_for) = if let DeliveryOutcome::Busy { message, delay } = delivered {
            (message, Some(delay))
        } else {
            (failure(delivered), None)
        };
        assert_eq!(busy_for, expected, "{first} {headers}");
        check_says(&message, &[first, "with 0 bytes"]);
    }
}

#[tokio::test]
async fn a_target_that_does_not_answer_times_out() {
    for answer in [
        Answer::Silence,
        Answer::Greeting("SSH-2.0-OpenSSH_9.2\r\n"),
        Answer::Drip("", "HTTP/1.1 200 OK\r\nx: "),
        Answer::Drip("HTTP/1.1 200 OK\r\n", "a: b\r\n"),
        Answer::Drip("HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"),
    ] {
        let server = Server::start(answer.clone()).await;
        let message = failure(deliver(&deliverer(), &impatient(server.url())).await);
        assert!(message.contains("did not answer"), "{answer:?}: {message}");
    }
    let server = Server::start(Answer::Silence).await;
    let message = failure(deliver(&deliverer(), &impatient(server.url())).await);
    check_says(&message, &["did not answer within 200ms", "register a longer timeout"]);
}

/// Once the status has arrived, nothing that follows changes the result.
#[tokio::test]
async fn a_body_without_end_changes_nothing() {
    let endless = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 10737418240\r\n\r\n");
    for (first, completes) in [("200 OK", true), ("500 Internal Server Error", false)] {
        let server = Server::start(Answer::Flood(endless(first), 10 << 30)).await;
        let delivered = deliver(&deliverer(), &target(server.url())).await;
        if completes {
            assert_eq!(delivered, DeliveryOutcome::Completed);
        } else {
            check_says(&failure(delivered), &["500", "more than 65536 bytes"]);
        }
        let taken = server.flooded();
        assert!(taken < 64 << 20, "{taken} bytes were taken, of 10 GiB");
    }
    let slow = Answer::Drip("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", "x");
    assert_eq!(answered(slow).await, DeliveryOutcome::Completed);
    let slow = Answer::Drip("HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 1000000\r\n\r\n", "x");
    let DeliveryOutcome::Busy { message, delay } = answered(slow).await else { panic!("it is not busy") };
    assert_eq!(delay, Duration::from_secs(7));
    check_says(&message, &["bytes so far"]);
    let short = text("HTTP/1.1 200 OK\ncontent-length: 10\n\nabc");
    assert_eq!(answered(short).await, DeliveryOutcome::Completed);
    let short = text("HTTP/1.1 500 Oh\ncontent-length: 10\n\nabc");
    check_says(&failed(short).await, &["with 3 bytes before the connection broke"]);
}

#[tokio::test]
async fn a_malformed_answer_is_an_operational_error() {
    let many: String = (0..200).map(|number| format!("h{number}: v\n")).collect();
    let long = "x".repeat(1 << 20);
    for (answer, part) in [
        (Answer::Bytes(Vec::new()), "closed the connection without answering"),
        (text("HTTP/1.1 200 OK\nconte"), "closed the connection without answering"),
        (Answer::Reset(""), "connection broke before it answered"),
        (Answer::Reset("HTTP/1.1 200 OK\r\n"), "connection broke before it answered"),
        (text("SSH-2.0-OpenSSH_9.2\n"), "not HTTP/1.1"),
        (text("hello\n"), "not HTTP/1.1"),
        (status("100 Continue"), "not HTTP/1.1"),
        (Answer::Bytes(vec![0x15, 3, 1, 0, 2, 2, 70]), "not HTTP/1.1"),
        (text("HTTP/2.0 200 OK\n\n"), "not HTTP/1.1"),
        (text("HTTP/1.1 20 OK\n\n"), "not HTTP/1.1"),
        (text("HTTP/1.1 200 OK\nno colon\n\n"), "not HTTP/1.1"),
        (text("HTTP/1.1 200 OK\ncontent-length: 1\ncontent-length: 2\n\nab"), "not HTTP/1.1"),
        (text("HTTP/1.1 200 OK\ncontent-length: -1\n\n"), "not HTTP/1.1"),
        (text(&format!("HTTP/1.1 200 OK\n{many}\n")), "too many or too long"),
        (text(&format!("HTTP/1.1 200 OK\nx: {long}\n\n")), "too many or too long"),
        (Answer::Flood("HTTP/1.1 200 OK\r\nx: ".to_owned(), 10 << 30), "too many or too long"),
    ] {
        let shown: String = format!("{answer:?}").chars().take(100).collect();
        let message = failed(answer).await;
        assert!(message.contains(part), "{shown}: {message}");
    }
}
