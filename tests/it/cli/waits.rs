//! What commands that take long say meanwhile: on a pseudo-terminal, while a trigger or a lock
//! makes them wait.

use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::sync::mpsc;
use wakeq_testbed::{Guard, Launch, TestDatabase};

use super::Terminal;
use crate::support::service::{Answer, Service};
use crate::support::{SECRET_KEY, Statements, TIMEOUT};

/// Whether commands can be given a terminal; says so if not.
fn has_terminals() -> bool {
    let script = Command::new("script").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = script.is_ok_and(|status| status.success());
    if !is_there {
        println!("SKIPPED: what commands say at a terminal: `script` of util-linux is not installed");
    }
    is_there
}

/// Starts a command at a terminal, waits for these words, ends what holds it up, and waits until it
/// has succeeded.
async fn says(terminal: &Terminal, command: &str, words: &str, release: impl Future<Output = ()>) {
    let (sender, mut lines) = mpsc::channel(1_000);
    let line = format!("{} {command}", env!("CARGO_BIN_EXE_wakeq"));
    let launch = Launch::new("script").arguments(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let variables = terminal.variables.iter();
    let launch = variables.fold(launch, |launch, (name, value)| launch.environment(name, value));
    let guard = Guard::new(None).unwrap();
    let child = guard.start(launch.on_line(move |line| drop(sender.try_send(line.to_owned())))).unwrap();
    let said = async {
        while let Some(line) = lines.recv().await {
            if line.contains(words) {
                return;
            }
        }
        panic!("{command} does not say {words:?}: {}", child.last_lines());
    };
    tokio::time::timeout(TIMEOUT, said).await.expect(words);
    release.await;
    let ended = tokio::time::timeout(TIMEOUT, child.ended()).await.expect("it ends");
    assert!(ended.success(), "{command}: {}", child.last_lines());
}

/// Longer than the 2 s for which commands are silent, and shorter than the 5 s that a statement may
/// take. A lock would not do: what waits for one is cancelled much earlier.
const SLOW: &str = "create function slow() returns trigger language plpgsql as $$
                    begin perform pg_sleep(3); return null; end $$";

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn long_commands_say_how_far_they_are() {
    if !has_terminals() {
        return;
    }
    let service = Service::start().await;
    service.put("/handlers/WORKER/greet", json!({"url": "https://mail.example/events"})).await.json();
    let event = json!({"name": "greet", "value": "Ada"});
    Answer::of(service.on_canvas(Method::POST, "/events").json(&event)).await.json();
    let pool = &service.stage.pool;
    pool.run(SLOW).await;
    pool.run("create trigger slow after update on wakeq.http_targets execute function slow()").await;
    pool.run("create trigger slow after update on wakeq.chores execute function slow()").await;
    let keys = format!("{},{}", "6e".repeat(32), SECRET_KEY.1);
    let terminal = Terminal::beside(&service).set(SECRET_KEY.0, &keys);
    for (command, words) in [
        ("wake --all", "0 events made due, 0 woken so far"),
        ("secrets rotate", "the secrets of 0 targets encrypted so far"),
    ] {
        says(&terminal, command, words, async {}).await;
    }
    service.stop().await;
}

/// While another session holds up the first one, and then the list of them.
#[tokio::test]
async fn migrate_names_the_migration_that_it_applies() {
    if !has_terminals() {
        return;
    }
    let empty = TestDatabase::create(b"empty", async |_| Ok::<_, std::io::Error>(())).await.unwrap();
    let terminal = Terminal::on(&empty);
    let mut holder = PgConnection::connect(empty.url()).await.unwrap();
    for (lock, words) in [
        ("create schema wakeq", "migration 1: events"),
        ("lock table wakeq._migrations", "looking for missing migrations"),
    ] {
        let mut held = holder.begin().await.unwrap();
        sqlx::raw_sql(lock).execute(&mut *held).await.unwrap();
        let release = async { held.rollback().await.unwrap() };
        says(&terminal, "migrate", words, release).await;
    }
}
