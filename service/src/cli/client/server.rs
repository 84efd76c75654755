//! A server as the transport. The key determines what a command may do.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use wakeq::CanvasId;
use wakeq_client::{Error, Listening};

use super::request::Request;
use crate::cli::failure::Failure;
use crate::cli::show;
use crate::http::problem::Kind;

/// Maximum size of a key: an ID token has about 1 KiB.
const KEY_MAX_BYTES: u64 = 8 * 1024;

/// Which server to ask.
#[derive(Args, Clone)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Send the command to this server instead of the database, with the key in WAKEQ_KEY [env:
    /// WAKEQ_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// Read the key from this file instead [env: WAKEQ_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// The server to use, and where it was given.
pub(crate) enum ServerChoice {
    Unset,
    Flag(String),
    Environment(String),
}

impl ServerArgs {
    /// The server to use, if one is given.
    pub(crate) fn choice(&self) -> ServerChoice {
        match (&self.server, variable("WAKEQ_SERVER")) {
            (Some(url), _) => ServerChoice::Flag(url.clone()),
            (None, Some(url)) => ServerChoice::Environment(url),
            (None, None) => ServerChoice::Unset,
        }
    }

    fn key(&self) -> anyhow::Result<String> {
        let file = self.key_file.clone().or_else(|| variable("WAKEQ_KEY_FILE").map(PathBuf::from));
        match (file, variable("WAKEQ_KEY")) {
            (Some(file), _) => {
                read_key(&file).with_context(|| format!("read the key from {}", file.display()))
            }
            (None, Some(key)) => Ok(key),
            (None, None) => {
                let words = "WAKEQ_KEY is not set: export WAKEQ_KEY=wakeq_…, or pass --key-file";
                Err(Failure::Failed(words.to_owned()).into())
            }
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The text of the file, without the byte order mark that some editors write.
fn read_key(file: &Path) -> anyhow::Result<String> {
    let mut key = String::new();
    std::fs::File::open(file)?.take(KEY_MAX_BYTES).read_to_string(&mut key)?;
    let key = key.trim_start_matches('\u{feff}').trim();
    anyhow::ensure!(!key.is_empty(), "the file is empty: it has to contain a key, wakeq_…");
    Ok(key.to_owned())
}

/// A server of the API.
pub(crate) struct Server(wakeq_client::Client);

impl Server {
    /// Sends nothing yet.
    pub(crate) fn new(url: &str, arguments: &ServerArgs) -> anyhow::Result<Self> {
        // The URL is judged first, so that a wrong one is not reported as a missing key.
        let client = wakeq_client::Client::new(url, "key").map_err(Failure::from)?;
        let client = client.key(arguments.key()?.trim())?;
        if client.is_in_the_clear() {
            show::note(
                "wakeq: the server's URL begins with http://, so the key travels in the clear: prefer https://",
            );
        }
        Ok(Self(client))
    }

    /// Sends a request about a canvas, and returns the body of its answer.
    pub(crate) async fn send(&self, request: &Request, canvas: CanvasId) -> Result<Vec<u8>, Failure> {
        Ok(self.0.send(&request.about(canvas)).await?)
    }

    /// Parses the body of an answer.
    pub(crate) fn parse<T: serde::de::DeserializeOwned>(&self, body: &[u8]) -> Result<T, Failure> {
        Ok(self.0.parse(body)?)
    }

    /// Opens the stream of events emitted on all canvases of the key.
    pub(crate) async fn listen(&self, pattern: &str) -> Result<Listening, Failure> {
        Ok(self.0.listen(pattern).await?)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let words = error.to_string();
        match error {
            Error::Invalid(_) => Self::Usage(words),
            // As on the database: repeating the command would not help before events have ended.
            Error::Refused(problem) if problem.code() == Kind::QuotaExceeded.slug() => Self::Conflict(words),
            Error::Refused(problem) => Self::of_status(problem.status, words),
            Error::Unexpected { status: 429 | 502..=504, .. }
            | Error::Unreachable { .. }
            | Error::Lost { .. } => Self::Unavailable(words),
            Error::Unexpected { status: 401 | 403, .. } => Self::Refused(words),
            Error::Unexpected { .. } | Error::TooLarge { .. } | Error::Unreadable { .. } | _ => {
                Self::Failed(words)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wakeq_client::Problem;

    use super::*;
    use crate::cli::failure::Exit;

    #[test]
    fn a_used_up_quota_is_a_conflict_and_any_other_limit_passes() {
        for (kind, exit) in [
            (Kind::QuotaExceeded, Exit::Conflict),
            (Kind::QuotaReached, Exit::Conflict),
            (Kind::TooManyRequests, Exit::Unavailable),
            (Kind::LimitReached, Exit::Unavailable),
            (Kind::Timeout, Exit::Unavailable),
        ] {
            let body = json!({
                "type": format!("urn:wakeq:problem:{}", kind.slug()),
                "title": "", "detail": "", "request_id": "",
            });
            let mut problem: Problem = serde_json::from_value(body).unwrap();
            problem.status = kind.status().as_u16();
            let failure = Failure::from(Error::Refused(Box::new(problem)));
            assert_eq!(Exit::of(&failure.into()), exit, "{kind:?}");
        }
    }
}
