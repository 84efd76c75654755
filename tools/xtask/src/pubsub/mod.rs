//! `cargo xtask pubsub-…`: official clients, against our emulator or Google's, and generated
//! sequences of calls against both.

mod go;
mod node;
mod python;
mod sequences;

use std::path::PathBuf;

use anyhow::{Context, Result};
use tokio::sync::oneshot;
use wakeq_testbed::{ChildProcess, GoogleEmulator, Guard, Launch};

use crate::{cargo, root, succeed};

pub(crate) use self::go::run as go;
pub(crate) use self::node::run as node;
pub(crate) use self::python::run as python;
pub(crate) use self::sequences::run as sequences;

/// Starts an emulator, ours or Google's, for tests that get its address.
fn with_emulator<T>(google: bool, test: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    tokio::runtime::Runtime::new()?.block_on(async {
        if google {
            let emulator = GoogleEmulator::start(None).await?;
            test(&emulator.host())
        } else {
            let (_running, host) = ours().await?;
            test(&host)
        }
    })
}

/// Starts the binary of this tree on a free port.
async fn ours() -> Result<(ChildProcess, String)> {
    succeed(cargo().args(["build", "--quiet", "--bin", "pubsub-emulator"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let (sender, said) = oneshot::channel();
    let mut sender = Some(sender);
    let launch =
        Launch::new(target.join("debug/pubsub-emulator")).arguments(["--port", "0"]).on_line(move |line| {
            let host = line.rsplit_once("PUBSUB_EMULATOR_HOST=").map(|(_, host)| host.to_owned());
            if let Some((host, sender)) = host.and_then(|host| Some((host, sender.take()?))) {
                // The receiver may have given up.
                let _unheard = sender.send(host);
            }
        });
    let emulator = Guard::new(None)?.start(launch)?;
    let host = said.await.with_context(|| format!("it did not start:\n{}", emulator.last_lines()))?;
    Ok((emulator, host))
}
