//! A peer's program: it sets its tables up, reports the size of its payloads, then answers each
//! line of its input, such as `drain 1000`, by a line of JSON. It is killed at the end.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::latency::Percentiles;
use crate::subject::Payload;

/// A running program.
pub(crate) struct Child {
    process: std::process::Child,
    requests: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

/// What a program says when it is ready.
#[derive(Deserialize)]
struct Ready {
    payload_bytes: usize,
}

/// How long a request took, and the latencies of events if it emitted at a rate.
#[derive(Deserialize)]
pub(crate) struct Reply {
    pub(crate) secs: f64,
    #[serde(flatten)]
    pub(crate) latency: Option<Percentiles>,
}

impl Child {
    /// Starts a command for a peer and waits until it is ready.
    pub(crate) fn start(command: &[PathBuf], peer: &str, url: &str) -> Result<Self> {
        let (program, arguments) = command.split_first().context("a command is empty")?;
        let mut process = Command::new(program)
            .args(arguments)
            .arg(peer)
            .env("DATABASE_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} can't be started", program.display()))?;
        let requests = process.stdin.take().context("the program has no stdin")?;
        let replies = BufReader::new(process.stdout.take().context("the program has no stdout")?).lines();
        let mut child = Self { process, requests, replies };
        let Ready { payload_bytes } = child.reply().context("the program did not become ready")?;
        let bytes = Payload::bytes()?;
        ensure!(payload_bytes == bytes, "its payloads have {payload_bytes} bytes, all others {bytes}");
        Ok(child)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Reply> {
        writeln!(self.requests, "{request}").and_then(|()| self.requests.flush())?;
        self.reply().with_context(|| format!("no answer to `{request}`"))
    }

    /// Blocks: nothing else runs in this process meanwhile.
    fn reply<T: DeserializeOwned>(&mut self) -> Result<T> {
        tokio::task::block_in_place(|| {
            for line in self.replies.by_ref() {
                let line = line?;
                // Whatever else a library prints.
                if line.starts_with('{') {
                    return Ok(serde_json::from_str(&line)?);
                }
            }
            let status = self.process.wait()?;
            ensure!(status.success(), "the program failed ({status})");
            anyhow::bail!("the program exited")
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
