//! A running `cargo dev` in a folder of its own, known by the lines that it prints.
//!
//! It must never touch the `.dev` of this checkout.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::watch;
use tokio::time::timeout;
use wakeq_testbed::{ChildProcess, Guard, Launch};

use crate::root;

const PRINTED_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// The process.
pub(crate) struct Dev {
    lines: watch::Receiver<Vec<String>>,
    process: ChildProcess,
    _guard: Guard,
}

/// A binary that was built for debugging.
pub(crate) fn binary(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("debug").join(name)
}

impl Dev {
    /// Starts the binary, which has to be built, for this chore; returns once it works.
    pub(crate) async fn start(chore: &str, arguments: &[&str]) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("wakeq-{chore}-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let guard = Guard::new(Some(&folder))?;
        let (sender, lines) = watch::channel(Vec::new());
        let launch = Launch::new(binary("wakeq-dev"))
            .arguments(["--postgres", "installed", "--emulator", "own", "--port", "0"])
            .arguments(arguments)
            // Its `.dev` is two levels above, as in the repository.
            .environment("CARGO_MANIFEST_DIR", folder.join("tools/dev"))
            .on_line(move |line| sender.send_modify(|lines| lines.push(line.to_owned())));
        let dev = Self { lines, process: guard.start(launch)?, _guard: guard };
        dev.prints("WHAT HAPPENS").await?;
        Ok(dev)
    }

    /// Waits for a line that contains the words.
    pub(crate) async fn prints(&self, words: &str) -> Result<()> {
        let mut lines = self.lines.clone();
        let has_it = |lines: &Vec<String>| lines.iter().any(|line| line.contains(words));
        let found = timeout(PRINTED_WITHIN, lines.wait_for(has_it)).await;
        if matches!(found, Ok(Ok(_))) {
            return Ok(());
        }
        drop(found);
        bail!("{words:?} was not printed:\n{}", self.lines.borrow().join("\n"))
    }

    /// All lines so far.
    pub(crate) fn printed(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// What follows the words in the first line that begins with them, blanks apart.
    pub(crate) fn said(&self, words: &str) -> Result<String> {
        let printed = self.lines.borrow();
        let said = printed.iter().find_map(|line| line.trim_start().strip_prefix(words)).map(str::to_owned);
        said.with_context(|| format!("no line begins with {words:?}:\n{}", printed.join("\n")))
    }

    /// The lines for a second terminal.
    pub(crate) fn exports(&self) -> Result<String> {
        let printed = self.lines.borrow();
        let exports: Vec<_> =
            printed.iter().map(|line| line.trim()).filter(|line| line.starts_with("export ")).collect();
        ensure!(exports.len() >= 5, "it printed too few `export` lines:\n{}", printed.join("\n"));
        Ok(exports.join("\n"))
    }

    /// Ends it as Ctrl-C does.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.interrupt(ENDS_WITHIN).await?;
        self.prints("stopped; waiting events are kept in .dev").await
    }
}
