//! The two emulators, each as a process.

use std::sync::Mutex;

use tokio::sync::oneshot;
use wakeq_services::{ChildProcess, GoogleEmulator, Guard, Launch};

pub(crate) struct Emulators {
    ours: ChildProcess,
    host: String,
    _guard: Guard,
    pub(crate) google: GoogleEmulator,
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
        Self { ours, host, _guard: guard, google: GoogleEmulator::start(None).await.unwrap() }
    }

    pub(crate) fn ours(&self) -> &str {
        &self.host
    }

    pub(crate) fn google(&self) -> String {
        self.google.host()
    }

    /// The process ids of ours and of Google's, in this order.
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.ours.pid(), self.google.pid()]
    }
}

/// The resident memory of a process.
pub(crate) fn resident_kb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
