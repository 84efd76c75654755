//! Guarded children end with their parent, however that ends.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::sync::mpsc;
use wakeq_testbed::{AtEnd, Guard, Launch};

/// A new folder, which the guard removes.
fn scratch_folder() -> PathBuf {
    nix::unistd::mkdtemp(&std::env::temp_dir().join("wakeq-guard-XXXXXX")).unwrap()
}

fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    kill(Pid::from_raw(pid), None).is_ok() && !stat.contains(") Z ")
}

const HOLDS: &str = "WAKEQ_TEST_HOLDS_A_FAMILY";

#[expect(clippy::disallowed_methods, reason = "the end of a stranger sends no signal")]
/// The end of a process that is not our child sends us no signal, so it is polled for, up to a
/// limit.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{what} after 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that the next test kills: reports which processes it holds, on a channel that is not
/// captured.
#[tokio::test]
#[ignore = "runs only as another test's child"]
async fn holds_child_processes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(HOLDS) else { return };
    let guard = Guard::new(Some(folder.as_ref())).unwrap();
    let family = Launch::new("sh").argument("-c").argument("sh -c 'sleep 1000 & echo $$ $!; wait'; true");
    let say = |pids: &str| writeln!(std::io::stderr(), "{pids}").unwrap();
    guard.start(family.current_folder(&folder).on_line(say)).unwrap().ended().await;
}

#[test]
fn sigkill_of_the_parent_ends_its_children_and_removes_their_folder() {
    let folder = scratch_folder();
    fs::write(folder.join("file"), "content").unwrap();
    let mut parent = Command::new(std::env::current_exe().unwrap());
    parent.args(["--exact", "holds_child_processes_until_it_is_killed", "--ignored"]).env(HOLDS, &folder);
    let mut parent = parent.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(parent.stderr.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| runs(*pid)) && folder.exists());

    parent.kill().unwrap();
    parent.wait().unwrap();

    let mut rest = String::new();
    // would block forever if a survivor held the parent's output
    output.read_to_string(&mut rest).unwrap();
    wait_until("the folder is still there", || !folder.exists());
    wait_until("a process is still there", || !pids.iter().any(|pid| runs(*pid)));
}

#[tokio::test]
async fn kill_9_takes_all_descendants_along() {
    let guard = Guard::new(None).unwrap();
    let (sender, mut lines) = mpsc::channel(10);
    let family =
        Launch::new("sh").argument("-c").argument("trap '' TERM; sh -c 'sleep 1000 & echo $!; wait'; true");
    let child = guard.start(family.on_line(move |line| sender.try_send(line.to_owned()).unwrap())).unwrap();
    let descendant: i32 = lines.recv().await.unwrap().parse().unwrap();
    assert!(child.is_running() && runs(descendant));

    child.kill_9().await.unwrap();
    assert!(!child.is_running());
    wait_until("the grandchild's child is still there", || !runs(descendant));
}

#[tokio::test]
async fn stop_sends_sigterm_and_later_sigkill() {
    let guard = Guard::new(None).unwrap();
    let script = "trap 'echo leaving; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let (sender, mut lines) = mpsc::channel(10);
    let launch = Launch::new("sh").argument("-c").argument(script);
    let child = guard.start(launch.on_line(move |line| sender.try_send(line.to_owned()).unwrap())).unwrap();
    assert_eq!(lines.recv().await.unwrap(), "ready");

    child.stop(Duration::from_secs(10)).await.unwrap();
    assert_eq!(child.ended().await.code(), Some(7));
    assert_eq!(child.last_lines(), "ready\nleaving");

    let stubborn =
        guard.start(Launch::new("sh").argument("-c").argument("trap '' TERM; sleep 1000")).unwrap();
    stubborn.stop(Duration::from_millis(50)).await.unwrap();
    assert!(!stubborn.is_running());
}

#[tokio::test]
async fn a_program_that_does_not_exist_says_so() {
    let child = Guard::new(None).unwrap().start(Launch::new("/no/such/program")).unwrap();
    assert_eq!(child.ended().await.code(), Some(127));
    assert!(child.last_lines().contains("/no/such/program"), "{}", child.last_lines());
}

#[test]
fn the_folder_goes_with_the_guard_and_its_last_child() {
    let folder = scratch_folder();
    let guard = Guard::new(Some(&folder)).unwrap();
    let child = guard.start(Launch::new("sleep").argument("1000").current_folder(&folder)).unwrap();
    let pid = child.pid().cast_signed();
    drop(guard);
    assert!(folder.exists() && runs(pid));
    drop(child);
    assert!(!folder.exists() && !runs(pid));
}

const ENDS: &str = "WAKEQ_TEST_ENDS_WITH_AN_ACT";

/// The process that the next test kills: it has registered a program to run at its end.
#[test]
#[ignore = "runs only as another test's child"]
fn registers_an_at_end_program() {
    let Some(file) = std::env::var_os(ENDS) else { return };
    let _removal = AtEnd::run("rm", [file]).unwrap();
    std::io::stderr().write_all(b"ready\n").unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap(); // nothing ever arrives
}

/// A process that a script starts in the background ignores SIGINT and SIGQUIT, and so do its
/// children.
#[test]
fn at_end_programs_run_after_sigkill_even_with_ignored_signals() {
    let folder = scratch_folder();
    let file = folder.join("file");
    fs::write(&file, "content").unwrap();
    let mut parent = Command::new("sh");
    parent.args(["-c", "trap '' INT QUIT; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    parent.args(["--exact", "registers_an_at_end_program", "--ignored", "--nocapture"]).env(ENDS, &file);
    let mut parent =
        parent.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(parent.stderr.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap() == "ready"));
    assert!(file.exists());
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until("it is not done", || !file.exists());
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn at_end_programs_run_on_drop() {
    let folder = scratch_folder();
    let removal = AtEnd::run("rmdir", [&folder]).unwrap();
    assert!(folder.exists());
    drop(removal);
    wait_until("it is not done", || !folder.exists());
}
