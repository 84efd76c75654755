//! How commands end: exit codes, closed pipes, Ctrl-C; and what a server receives and what it
//! doesn't.
//!
//! The proxy between a terminal and a server that loses an answer is a raw socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;
use wiremock::ResponseTemplate;

use super::Terminal;
use crate::support::receiver::answering;
use crate::support::service::Service;
use crate::support::{Stage, Statements, database, durability};

#[tokio::test]
async fn a_server_refuses_with_its_own_words() {
    let service = Service::start().await;
    let url = format!("http://{}", service.address);
    let with = |key: &str| Terminal::without_variables().set("WAKEQ_SERVER", &url).set("WAKEQ_KEY", key);
    let reader = with(&service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await);
    assert_eq!(reader.prints(&["stats"]).await, "no events, no rules, and no targets\n");
    for (terminal, code, arguments, words) in [
        (&with("wakeq_nonsense"), 4, &["stats"][..], "A valid credential is required: "),
        (&reader, 4, &["pause", "greet"], "The credential does not allow this: "),
        (&reader, 4, &["audit", "list"], "The credential does not allow this: "),
        (&reader, 3, &["stats", "--canvas", "018f0000-0000-7000-8000-000000000001"], "Not found: "),
        (&reader, 2, &["events", "list", "--cursor", "x"], "The request is not valid: "),
        (&reader, 2, &["keys", "list", "--all-canvases"], "a server manages the keys of one canvas"),
    ] {
        let complaint = terminal.complains(code, arguments).await;
        assert!(complaint.starts_with(&format!("wakeq: {words}")), "{complaint}");
        assert!(complaint.contains("(request <id>)") || code == 2, "{complaint}");
    }
    for command in
        [&["migrate"][..], &["topics", "check"], &["wake"], &["settings", "show"], &["accounts", "list"]]
    {
        let expected = "wakeq: a server can't do this: set DATABASE_URL, and omit --server\n";
        assert_eq!(reader.complains(2, command).await, expected, "{command:?}");
    }
    service.stop().await;
}

#[tokio::test]
async fn reports_a_server_that_is_not_wakeq() {
    let page = |status: u16| {
        let page = ResponseTemplate::new(status).insert_header("location", "http://127.0.0.1:1/");
        page.set_body_raw("<html>\u{1b}[31mnot here</html>", "text/html")
    };
    let elsewhere = answering([404, 503, 503, 302, 200].map(page)).await;
    let server = format!("{}/base/", elsewhere.uri());
    let terminal = Terminal::without_variables().set("WAKEQ_KEY", "wakeq_5ecre7");
    for (code, words) in [
        (1, "answered 404 Not Found, but not in wakeq's format: is this its URL?"),
        (6, "answered 503 Service Unavailable: try again"),
        (6, "answered 503 Service Unavailable: try again"),
        (1, "answered 302 Found, but not in wakeq's format: is this its URL?"),
        (
            1,
            "returned an answer that this program can't read (expected value at line 1 column 1): \
             is the server older or newer?",
        ),
    ] {
        let complaint = terminal.complains(code, &["depth", "--server", &server]).await;
        assert_eq!(complaint, format!("wakeq: {server} {words}\n"));
    }
    let requests = elsewhere.received_requests().await.unwrap();
    assert_eq!(requests.len(), 5);
    let path = format!("http://localhost/base/v1/canvases/{}/depth", CanvasId::DEFAULT);
    for request in requests {
        assert_eq!((request.method.as_str(), request.url.as_str()), ("GET", path.as_str()));
        assert!(request.headers.contains_key("x-request-id"), "{request:?}");
        assert_eq!(request.headers["authorization"], "Bearer wakeq_5ecre7");
    }
    let away = terminal.complains(6, &["depth", "--server", "http://127.0.0.1:1"]).await;
    assert!(away.starts_with("wakeq: http://127.0.0.1:1/ is not reachable: "), "{away}");
    let clear = terminal.complains(6, &["depth", "--server", "http://0.0.0.0:1"]).await;
    let words = "wakeq: the server's URL begins with http://, so the key travels in the clear";
    assert!(clear.starts_with(words), "{clear}");
    let keyless = Terminal::without_variables();
    let unset = keyless.complains(1, &["depth", "--server", "http://127.0.0.1:1"]).await;
    assert_eq!(unset, "wakeq: WAKEQ_KEY is not set: export WAKEQ_KEY=wakeq_…, or pass --key-file\n");
    let bare = terminal.complains(2, &["depth", "--server", "127.0.0.1:8080"]).await;
    assert!(bare.starts_with("wakeq: a server's URL looks like https://"), "{bare}");
    let other = terminal.set("DATABASE_URL", "mysql://ada:5ecre7@127.0.0.1/queue");
    let other = other.complains(1, &["stats"]).await;
    assert!(other.starts_with("wakeq: DATABASE_URL is not the URL of a Postgres database: "), "{other}");
}

/// A repeated request meets the first attempt, which is still in progress, or a server without its
/// database: it is repeated, but not forever, and never after a lasting conflict.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_emit_that_is_in_progress_is_asked_for_again() {
    let answer = |status: u16| ResponseTemplate::new(status).insert_header("retry-after", "0");
    let problem = |status: u16, slug: &str| {
        let details = json!({"type": format!("urn:wakeq:problem:{slug}"), "title": slug, "status": 0, "detail": "x",
                             "request_id": "r"});
        answer(status).set_body_raw(details.to_string(), "application/problem+json")
    };
    let (busy, away) = (problem(409, "idempotency-in-progress"), problem(503, "unavailable"));
    let taken = problem(409, "id-taken");
    let done = json!({"id": "018f0000-0000-7000-8000-00000000000a", "duplicate": false});
    let done = answer(202).set_body_json(done);
    for (answers, code) in [
        (vec![busy.clone(), away.clone(), done], 0),
        (vec![busy.clone(); 4], 5),
        (vec![away; 4], 6),
        (vec![busy, taken], 5),
    ] {
        let count = answers.len();
        let server = answering(answers).await;
        let terminal =
            Terminal::without_variables().set("WAKEQ_SERVER", &server.uri()).set("WAKEQ_KEY", "wakeq_5ecre7");
        let printed = terminal.run(&["emit", "greet"]).await;
        assert_eq!(printed.code, Some(code), "{}", printed.err);
        let requests = server.received_requests().await.unwrap();
        let keys: Vec<_> = requests.iter().map(|request| &request.headers["idempotency-key"]).collect();
        assert_eq!(keys.len(), count);
        assert!(!keys[0].is_empty() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}

/// A value that is too long for an argument comes from standard input or a file.
#[tokio::test]
async fn a_value_comes_from_standard_input_or_a_file() {
    let service = Service::start().await;
    let terminal = Terminal::with_key(&service, &service.key);
    let value = json!("x".repeat(200_000)).to_string();
    let piped = async |text: String| {
        let mut command = terminal.command(&["emit", "greet", "-"]);
        let ended = tokio::task::spawn_blocking(move || {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        ended.await.unwrap()
    };
    let emitted = piped(format!("{value}\n")).await;
    assert_eq!(emitted.status.code(), Some(0), "{emitted:?}");
    let file = std::env::temp_dir().join(format!("wakeq-value-{}", service.stage.database.name()));
    std::fs::write(&file, &value).unwrap();
    assert_eq!(terminal.prints(&["emit", "greet", &format!("@{}", file.display())]).await, "<id>\n");
    std::fs::remove_file(file).unwrap();
    let stored: Vec<String> = service.stage.pool.values("select value::text from wakeq.events_v2").await;
    assert!(stored == [value.clone(), value], "{} values", stored.len());
    let refused = piped("{".into()).await;
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    service.stop().await;
}

/// If the first answer is lost, the event is sent again under the same key, and exists once.
#[tokio::test]
async fn an_emit_whose_answer_is_lost_is_repeated_safely() {
    let service = Service::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, upstream) = (listener.local_addr().unwrap(), service.address);
    let between = tokio::spawn(async move {
        for lost in [true, false] {
            let (mut caller, _) = listener.accept().await.unwrap();
            let mut server = tokio::net::TcpStream::connect(upstream).await.unwrap();
            let mut request = vec![0; 8192];
            let length = caller.read(&mut request).await.unwrap();
            server.write_all(&request[..length]).await.unwrap();
            let mut answer = vec![0; 8192];
            let length = server.read(&mut answer).await.unwrap();
            if !lost {
                caller.write_all(&answer[..length]).await.unwrap();
            }
        }
    });
    let terminal = Terminal::without_variables().set("WAKEQ_KEY", &service.key);
    let server = format!("http://{address}");
    assert_eq!(terminal.prints(&["emit", "greet", "--server", &server]).await, "<id>\n");
    between.await.unwrap();
    assert_eq!(service.stage.rows().await, 1);
    service.stop().await;
}

#[tokio::test]
async fn a_list_says_where_it_goes_on() {
    let service = Service::start().await;
    service.stage.emit_many("greet", 3).await;
    let key_file = std::env::temp_dir().join(format!("wakeq-key-{}", service.stage.database.name()));
    std::fs::write(&key_file, format!("{}\n", service.key)).unwrap();
    let terminal = Terminal::without_variables()
        .set("WAKEQ_SERVER", &format!("http://{}", service.address))
        .set("WAKEQ_KEY_FILE", key_file.to_str().unwrap());
    let first = terminal.run(&["events", "list", "--limit", "2"]).await;
    assert_eq!((first.code, first.out.lines().count()), (Some(0), 3), "{first:?}");
    let cursor = first.err.trim_end().strip_prefix("there are more: --cursor ").unwrap();
    let second = terminal.raw(&["events", "list", "--limit", "2", "--cursor", cursor]).await;
    assert_eq!(second.lines().count(), 2, "{second}");
    let json = terminal.raw(&["events", "list", "--limit", "2", "--json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["items"].as_array().unwrap().len(), json["next_cursor"].as_str()), (2, Some(cursor)));
    std::fs::remove_file(key_file).unwrap();
    service.stop().await;
}

#[tokio::test]
async fn a_server_makes_and_revokes_keys() {
    let service = Service::start().await;
    let terminal = Terminal::with_key(&service, &service.key);
    let created = terminal.run(&["keys", "create", "bot", "--scope", "read", "--json"]).await;
    for words in [" for bot, on canvas ", ": read, until "] {
        assert!(created.err.contains(words), "{}", created.err);
    }
    let created: Value = serde_json::from_str(&created.out).unwrap();
    let (id, key) = (created["id"].as_str().unwrap(), created["key"].as_str().unwrap());
    let prefix = format!("wakeq_{id}");
    assert!(key.starts_with(&prefix), "{key}");
    let line = async || {
        let listed = terminal.raw(&["keys", "list"]).await;
        assert!(!listed.contains(key), "{listed}");
        let found = listed.lines().find(|line| line.starts_with(&prefix));
        found.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line().await[1..4], ["bot", "read", "live"]);
    let revoked = format!("{prefix} revoked; it is refused everywhere within a minute\n");
    assert_eq!(terminal.raw(&["keys", "revoke", &prefix]).await, revoked);
    assert_eq!(line().await[1..4], ["bot", "read", "revoked"]);
    terminal.complains(3, &["keys", "revoke", id]).await;
    service.stop().await;
}

#[tokio::test]
async fn every_shell_is_completed() {
    let terminal = Terminal::without_variables();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = terminal.raw(&["completions", shell]).await;
        assert!(script.contains("run-now") && script.contains("key-file"), "{shell}: {script}");
    }
    let help = Terminal::without_variables()
        .set("WAKEQ_KEY", "wakeq_5ecre7")
        .set("DATABASE_URL", "postgres://ada:5ecre7@127.0.0.1/queue")
        .raw(&["events", "emit", "--help-all"])
        .await;
    assert!(help.contains("WAKEQ_KEY") && !help.contains("5ecre7"), "{help}");
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("wakeq-man-{}", std::process::id()));
    let terminal = Terminal::without_variables().set("WAKEQ_KEY", "wakeq_5ecre7");
    terminal.raw(&["man", folder.to_str().unwrap()]).await;
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(page("wakeq.1").contains("wakeq\\-queues(1)"), "{}", page("wakeq.1"));
    let emit = page("wakeq-events-emit.1");
    assert!(emit.contains("\\-\\-after") && emit.contains("WAKEQ_KEY") && !emit.contains("5ecre7"), "{emit}");
    std::fs::remove_dir_all(&folder).unwrap();

    let words = terminal.complains(1, &["man", "/dev/null/man1"]).await;
    assert!(words.starts_with("wakeq: can't write manual pages into /dev/null/man1: "), "{words}");
}

#[tokio::test]
async fn a_closed_pipe_is_no_complaint() {
    let mut child = Terminal::without_variables()
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(0), String::new()));
}

#[tokio::test]
async fn stats_are_refreshed_until_ctrl_c() {
    let (stage, _) = Stage::memory().await;
    stage.queue.emit(Event::new("greet", "Ada").unwrap()).await.unwrap();
    let mut watching = Terminal::on(&stage.database).command(&["stats", "--watch", "1"]);
    let watched = tokio::task::spawn_blocking(move || {
        let mut child = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen: Vec<String> = lines.by_ref().take(6).map(Result::unwrap).collect();
        let interrupted =
            Command::new("sh").args(["-c", "kill -INT $0", &child.id().to_string()]).status().unwrap();
        assert!(interrupted.success());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (seen, child.wait().unwrap().code(), said)
    });
    let (seen, code, said) = watched.await.unwrap();
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let table = [
        "HANDLER       WAITING  DELAYED  PAUSED  RUNNING  DEAD  RULES",
        "WORKER/greet        1        0       0        0     0",
    ];
    assert_eq!((&seen[1..3], &seen[4..6]), (&table.map(str::to_owned)[..], &table.map(str::to_owned)[..]));
    assert!(seen[0].ends_with(", every 1s") && seen[3].ends_with(", every 1s"), "{seen:?}");
    let together = Terminal::on(&database().await).run(&["stats", "--watch", "--json"]).await;
    assert_eq!(together.code, Some(2), "{together:?}");
}

/// Compose passes on what is not set as an empty text. What is wrong is named by its variable.
#[tokio::test]
async fn variables_may_be_empty_and_are_named_if_they_are_wrong() {
    let empty = ["PORT", "WAKEQ_CAPACITY", "WAKEQ_SHARE", "WAKEQ_LOG_FORMAT", "WAKEQ_LEASE"];
    let empty =
        empty.into_iter().fold(Terminal::without_variables(), |terminal, name| terminal.set(name, ""));
    let words = empty.complains(1, &["all"]).await;
    assert!(words.contains("DATABASE_URL is not set"), "{words}");
    let words = Terminal::without_variables().set("PORT", "abc").complains(2, &["serve"]).await;
    assert!(words.contains("this is the value of the environment variable PORT"), "{words}");
    for (url, code, complaint) in [
        ("postgres://ada:p/w@127.0.0.1/queue", 1, "percent-encode it (/ as %2F"),
        ("postgres://127.0.0.1:1/q?user=sa@p.iam", 6, "Postgres is not reachable"),
        ("postgres://127.0.0.1:1/q?user=ada&password=p@ss", 6, "Postgres is not reachable"),
    ] {
        let words =
            Terminal::without_variables().set("DATABASE_URL", url).complains(code, &["migrate"]).await;
        assert!(words.contains(complaint), "{url}: {words}");
    }
    let file = std::env::temp_dir().join(format!("wakeq-empty-key-{}", std::process::id()));
    std::fs::write(&file, "\u{feff}\n").unwrap();
    let server = ["stats", "--server", "http://127.0.0.1:1", "--key-file", file.to_str().unwrap()];
    let words = Terminal::without_variables().complains(1, &server).await;
    assert!(words.contains("the file is empty"), "{words}");
    std::fs::remove_file(&file).unwrap();
}

/// Without a key there is nothing to encrypt with.
#[tokio::test]
async fn secrets_are_not_rotated_without_a_key() {
    let database = database().await;
    let (name, value) = durability();
    let keyless = Terminal::without_variables().set("DATABASE_URL", database.url()).set(name, value);
    let words = keyless.complains(2, &["secrets", "rotate"]).await;
    assert!(words.contains("set WAKEQ_SECRET_KEY"), "{words}");
}
