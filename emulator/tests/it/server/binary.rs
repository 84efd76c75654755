//! The program: its output, and how it ends.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::soon;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pubsub-emulator"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Its first line of output, printed once it listens.
async fn started(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    line
}

#[tokio::test]
async fn prints_its_address_and_exits_cleanly_on_a_signal() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut child = program(&["--port", "0"]).spawn().unwrap();
        let line = soon(started(&mut child)).await;
        let host = line.trim().rsplit_once("PUBSUB_EMULATOR_HOST=").map(|(_, host)| host.to_owned()).unwrap();
        assert!(line.contains(&format!("listening on {host}")), "{line}");
        let answer = reqwest::get(format!("http://{host}/v1/projects/a-project/topics")).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        kill(Pid::from_raw(child.id().unwrap().cast_signed()), signal).unwrap();
        assert_eq!(soon(child.wait()).await.unwrap().code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn startup_errors_are_one_line() {
    let mut first = program(&["--port", "0"]).spawn().unwrap();
    let line = soon(started(&mut first)).await;
    let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap();
    for (arguments, words) in [
        (["--port", port.as_str()], "choose another port"),
        (["--port", "70000"], "70000"),
        (["--host", ""], "--host"),
    ] {
        let output = soon(program(&arguments).output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}
