//! The emulators, each as a process.

use std::ffi::OsString;
use std::sync::Mutex;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use wakeq_testbed::{ChildProcess, GoogleEmulator, Guard, Launch, free_port};

/// Names a program to run beside ours and Google's.
const DELTIO: &str = "DELTIO";

pub(crate) struct Emulators {
    ours: ChildProcess,
    host: String,
    pub(crate) google: GoogleEmulator,
    deltio: Option<(ChildProcess, String)>,
    _guard: Guard,
}

/// An emulator.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) host: String,
    pub(crate) pid: u32,
}

impl Emulators {
    pub(crate) async fn start() -> Self {
        let guard = Guard::new(None).unwrap();
        let (sender, said) = oneshot::channel();
        let sender = Mutex::new(Some(sender));
        let ours = guard
            .start(Launch::new(env!("CARGO_BIN_EXE_pubsub-emulator")).arguments(["--port", "0"]).on_line(
                move |line| {
                    let host = line.rsplit_once("PUBSUB_EMULATOR_HOST=").map(|(_, host)| host.to_owned());
                    if let Some((host, sender)) = host.zip(sender.lock().unwrap().take()) {
                        let _ = sender.send(host);
                    }
                },
            ))
            .unwrap();
        let host = said.await.unwrap();
        let deltio = match std::env::var_os(DELTIO) {
            Some(program) => Some(deltio(&guard, program).await),
            None => None,
        };
        Self { ours, host, google: GoogleEmulator::start(None).await.unwrap(), deltio, _guard: guard }
    }

    /// Ours, then Google's.
    pub(crate) fn sides(&self) -> Vec<Side> {
        let (ours, google) = (&self.ours, &self.google);
        let mut sides = vec![
            Side { name: "ours", host: self.host.clone(), pid: ours.pid() },
            Side { name: "Google's", host: google.host(), pid: google.pid() },
        ];
        if let Some((process, host)) = &self.deltio {
            sides.push(Side { name: "deltio", host: host.clone(), pid: process.pid() });
        }
        sides
    }
}

/// Starts it, and waits until it listens.
async fn deltio(guard: &Guard, program: OsString) -> (ChildProcess, String) {
    let host = format!("127.0.0.1:{}", free_port().unwrap());
    let process = guard.start(Launch::new(program).arguments(["--bind", &host])).unwrap();
    while TcpStream::connect(&host).await.is_err() {
        assert!(process.is_running(), "{}", process.last_lines());
        tokio::task::yield_now().await;
    }
    (process, host)
}

/// The resident memory of a process.
pub(crate) fn resident_kb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
