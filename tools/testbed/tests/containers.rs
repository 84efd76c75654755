//! Containers: they outlive the runtime of the test that started them, and are removed with their
//! process, even if that is killed; the next process removes what one still left.
//!
//! They run only if containers are compiled in and requested: `TEST_POSTGRES=container`.

#![cfg(feature = "containers")]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use wakeq_testbed::{Postgres, Requested};

const HOLDS: &str = "WAKEQ_TEST_HOLDS_A_CONTAINER";
const MACHINE: &str = "wakeq.test.machine";
const PROCESS: &str = "wakeq.test.process";

fn are_asked_for() -> bool {
    let requested = std::env::var("TEST_POSTGRES").is_ok_and(|choice| choice == "container");
    if !requested {
        let words = "SKIPPED: a test of containers. TEST_POSTGRES=container asks for it";
        let _ = writeln!(std::io::stderr(), "{words}");
    }
    requested
}

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The containers of a process, running or not.
fn containers_of(process: u32) -> Vec<String> {
    let label = format!("label={PROCESS}={process}");
    docker(&["ps", "--all", "--quiet", "--filter", &label]).lines().map(str::to_owned).collect()
}

/// Their remover reports to no one, so the engine is polled, up to a limit.
fn wait_until_gone(process: u32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !containers_of(process).is_empty() {
        assert!(Instant::now() < deadline, "{:?} after 60 s", containers_of(process));
    }
}

/// The process that other tests start: has a container for as long as its input is open.
#[tokio::test]
#[ignore = "runs only as another test's child"]
async fn holds_a_container() {
    if std::env::var_os(HOLDS).is_none() {
        return;
    }
    let requested = Requested::by_variable("TEST_POSTGRES").unwrap();
    let _postgres = Postgres::choose(Default::default(), requested).await.unwrap();
    std::io::stderr().write_all(b"ready\n").unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

/// The process, its input, which keeps it alive, and what it printed until it was ready.
fn holder() -> (Child, ChildStdin, String) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "holds_a_container", "--ignored", "--nocapture"]).env(HOLDS, "1");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<_> = lines.take_while(|line| line != "ready").collect();
    let input = child.stdin.take().unwrap();
    (child, input, said.join("\n"))
}

// Shows: CARD-02
#[test]
fn a_container_outlives_its_runtime_and_is_removed_on_drop() {
    if !are_asked_for() {
        return;
    }
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let take = || {
        runtime().block_on(async {
            Postgres::choose(Default::default(), Requested::by_variable("TEST_POSTGRES").unwrap())
                .await
                .unwrap()
                .service
        })
    };
    let answers = |postgres: &Postgres| {
        runtime().block_on(async {
            PgConnection::connect(&postgres.maintenance_url()).await.unwrap().close().await.unwrap();
        });
    };
    let one = take();
    let other = take(); // by a client that was first used on a runtime that has ended
    answers(&one);
    answers(&other);
    assert_eq!(containers_of(std::process::id()).len(), 2);
    drop((one, other));
    wait_until_gone(std::process::id());
}

// Shows: CARD-02
#[test]
fn a_killed_process_leaves_none() {
    if !are_asked_for() {
        return;
    }
    let (mut child, _input, said) = holder();
    assert_eq!(containers_of(child.id()).len(), 1, "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(child.id());
}

// Shows: CARD-02
#[test]
fn the_next_process_removes_only_leftover_containers() {
    if !are_asked_for() {
        return;
    }
    let (mut child, input, _) = holder();
    let living = containers_of(child.id()).remove(0);
    let inspect = |what: &str| docker(&["inspect", "--format", what, &living]);
    let machine = inspect(&format!("{{{{index .Config.Labels \"{MACHINE}\"}}}}"));
    let image = inspect("{{.Config.Image}}");
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let create = |machine: &str| {
        let labels = [format!("{MACHINE}={machine}"), format!("{PROCESS}={}", gone.id())];
        docker(&["create", "--network=none", "--label", &labels[0], "--label", &labels[1], &image])
    };
    let (_left, elsewhere) = (create(&machine), create("elsewhere"));

    let (mut next, its_input, said) = holder();
    assert!(said.contains("is removed: its process no longer exists"), "{said}");
    assert_eq!(containers_of(gone.id()).len(), 1, "that of another machine");
    assert_eq!(containers_of(child.id()).len(), 1);
    docker(&["rm", &elsewhere]);
    drop((input, its_input));
    for process in [&mut child, &mut next] {
        assert!(process.wait().unwrap().success());
        wait_until_gone(process.id());
    }
}
