//! Signatures on the wire: what they cover, with which secrets, and that other implementations
//! verify them.

use std::process::Stdio;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use wakeq::EventId;
use wakeq::targets::{Secret, Secrets, Target};
use wakeq_service::delivery::DeliveryOutcome;

use super::servers::{Answer, Server};
use super::{FORMER_SECRET, SECRET, TRACE, deliver, deliver_event, deliverer, failure, target};

const RECEIVERS: &str = include_str!("../../../../docs/delivery.md");

fn secrets(current: &str, previous: Option<&str>) -> Secrets {
    Secrets { current: current.parse().unwrap(), previous: previous.map(|secret| secret.parse().unwrap()) }
}

fn signature(secret: &str, message: &str) -> String {
    let secret: Secret = secret.parse().unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, message.as_bytes())))
}

#[tokio::test]
async fn each_attempt_is_signed_anew_and_is_the_same_message() {
    let server = Server::start(Answer::KeepAlive("HTTP/1.1 204 No Content\r\n\r\n")).await;
    let (deliverer, id) = (deliverer(), EventId::new());
    let target = Target { secrets: secrets(SECRET, Some(FORMER_SECRET)), ..target(server.url()) };
    let json = "{\"name\": \"Ada\",  \"é\": 1.50}";
    for attempt in 1..=2 {
        assert_eq!(deliver_event(&deliverer, &target, id, json, attempt).await, DeliveryOutcome::Completed);
    }
    for (request, attempt) in server.requests().iter().zip(1..) {
        assert_eq!(request.body, json, "to the letter");
        assert!(request.head.starts_with("POST /events?source=queue HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!(request.header("host"), server.address.to_string());
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("content-length"), json.len().to_string());
        for name in ["webhook-id", "ce-id"] {
            assert_eq!(request.header(name), id.to_string());
        }
        assert_eq!(request.header("ce-specversion"), "1.0");
        assert_eq!(request.header("ce-type"), "WORKER/greet/_");
        assert_eq!(request.header("ce-source"), "/canvases/00000000-0000-0000-0000-000000000000");
        assert_eq!(request.header("ce-time"), "2026-01-31T08:00:00.000000Z");
        assert_eq!(request.header("traceparent"), TRACE);
        assert_eq!(request.header("wakeq-attempt"), attempt.to_string());
        assert_eq!(request.head.lines().count(), 16, "and nothing else: {}", request.head);
        let message = format!("{id}.{}.{json}", request.header("webhook-timestamp"));
        let expected = [SECRET, FORMER_SECRET].map(|secret| signature(secret, &message)).join(" ");
        assert_eq!(request.header("webhook-signature"), expected);
    }
}

/// How to run a receiver from docs/delivery.md.
struct Receiver {
    language: &'static str,
    extension: &'static str,
    /// The interpreter or compiler.
    program: String,
    is_compiled: bool,
}

impl Receiver {
    /// Starts it; returns its port.
    async fn start(&self) -> (Child, u16) {
        let (_, code) = RECEIVERS.split_once(&format!("```{}\n", self.language)).expect("no receiver in it");
        let (code, _) = code.split_once("```").unwrap();
        let folder = std::env::temp_dir().join(format!("wakeq-receiver-{}", EventId::new()));
        std::fs::create_dir(&folder).unwrap();
        let (source, compiled) =
            (folder.join(format!("receiver.{}", self.extension)), folder.join("receiver"));
        std::fs::write(&source, code).unwrap();
        let mut command = Command::new(&self.program);
        if self.is_compiled {
            let built = command.args(["build", "-o"]).args([&compiled, &source]).status().await.unwrap();
            assert!(built.success(), "{}: it does not compile", self.language);
            command = Command::new(&compiled);
        } else {
            command.arg(&source);
        }
        command.env("WEBHOOK_SECRET", SECRET).env("PORT", "0").kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().expect("the receiver does not say where it listens");
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                println!("{line}")
            }
        });
        std::fs::remove_dir_all(&folder).unwrap();
        (child, first.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

/// A receiver accepts events signed with its secret, alone or beside another, and no others.
async fn check_receiver(receiver: &Receiver) {
    let language = receiver.language;
    let (_child, port) = receiver.start().await;
    let url = format!("http://127.0.0.1:{port}/events");
    let deliverer = deliverer();
    for (current, previous, takes) in [
        (SECRET, None, true),
        (FORMER_SECRET, Some(SECRET), true),
        (SECRET, Some(FORMER_SECRET), true),
        (FORMER_SECRET, None, false),
    ] {
        let target = Target { secrets: secrets(current, previous), ..target(url.parse().unwrap()) };
        let delivered = deliver(&deliverer, &target).await;
        if takes {
            assert_eq!(delivered, DeliveryOutcome::Completed, "{language}");
        } else {
            let message = failure(delivered);
            assert!(message.contains("401"), "{language}: {message}");
        }
    }
    // The same event again, and values that are not plain objects.
    let target = target(url.parse().unwrap());
    let id = EventId::new();
    for json in ["\"Ada\"", "\"Ada\"", "null", "{\"é\": [1.50, \"😀\"]}"] {
        let delivered = deliver_event(&deliverer, &target, id, json, 1).await;
        assert_eq!(delivered, DeliveryOutcome::Completed, "{language}: {json}");
    }
    println!("{language}: every signature is taken or refused as it should be");
}

#[tokio::test]
#[ignore = "needs the library: `cargo xtask sdk` installs it and runs this"]
async fn the_official_library_verifies() {
    let program =
        std::env::var("WAKEQ_SDK_PYTHON").expect("WAKEQ_SDK_PYTHON: the Python that has the library");
    check_receiver(&Receiver { language: "python", extension: "py", program, is_compiled: false }).await;
    for (language, extension, program, is_compiled) in
        [("js", "mjs", "node", false), ("go", "go", "go", true)]
    {
        let receiver = Receiver { language, extension, program: program.to_owned(), is_compiled };
        if Command::new(program)
            .arg("help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await
            .is_ok()
        {
            check_receiver(&receiver).await;
        } else {
            println!("SKIPPED: {program} is not installed");
        }
    }
}
