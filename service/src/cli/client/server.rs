//! A server as the transport: requests with a key, answers within limits of size and time, problem
//! details as errors. The key determines what a command may do.
//!
//! Must never reveal the key, follow a redirect with it, or repeat a request that is not safe to
//! repeat.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use uuid::Uuid;

use super::request::{self, Request};
use crate::cli::failure::{Failure, causes};
use crate::cli::show;
use wakeq::CanvasId;

/// Timeout for connecting.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Timeout of a whole request: a bulk request of 10,000 takes seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Maximum size of an answer: a page of events with long errors, or a value of the maximum size.
const ANSWER_MAX_BYTES: usize = 32 * 1024 * 1024;
/// Maximum size of a key: an ID token has about 1 KiB.
const KEY_MAX_BYTES: u64 = 8 * 1024;
/// Maximum duration of listening.
const LISTEN_WITHIN: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often a repeatable request is retried after its answer was lost.
const LOSSES: u32 = 1;
/// How often a request with an idempotency key is retried after being told to try later.
const WAITS: u32 = 3;
/// Maximum wait before that, if the answer asks for longer.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

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

    fn key(&self) -> anyhow::Result<HeaderValue> {
        let file = self.key_file.clone().or_else(|| variable("WAKEQ_KEY_FILE").map(PathBuf::from));
        let key = match (file, variable("WAKEQ_KEY")) {
            (Some(file), _) => {
                read_key(&file).with_context(|| format!("read the key from {}", file.display()))?
            }
            (None, Some(key)) => key,
            (None, None) => {
                let words = "WAKEQ_KEY is not set: export WAKEQ_KEY=wakeq_…, or pass --key-file";
                return Err(Failure::Failed(words.to_owned()).into());
            }
        };
        let header = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
        let mut header = header.map_err(|_| {
            anyhow::anyhow!(
                "the key contains characters that are \
                                                             not allowed in a key"
            )
        })?;
        header.set_sensitive(true);
        Ok(header)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read_key(file: &Path) -> std::io::Result<String> {
    let mut key = String::new();
    std::fs::File::open(file)?.take(KEY_MAX_BYTES).read_to_string(&mut key)?;
    Ok(key)
}

/// A server of the API.
pub(crate) struct Server {
    http: reqwest::Client,
    base: Url,
    key: HeaderValue,
}

/// A complete answer.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// Whether the same request may succeed a moment later: something is unavailable, or the
    /// request is still being processed on another connection, whose answer was lost.
    fn is_later(&self) -> bool {
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => true,
            StatusCode::CONFLICT => serde_json::from_slice(&self.body)
                .is_ok_and(|problem: Problem| problem.kind == "urn:wakeq:problem:idempotency-in-progress"),
            _ => false,
        }
    }

    /// How long to wait before the next attempt: a second, if the answer does not say.
    fn retry_after(&self) -> Duration {
        let seconds = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Duration::from_secs(seconds.unwrap_or(1)).min(RETRY_AFTER_MAX)
    }
}

/// The fields of problem details that are shown.
#[derive(Deserialize)]
struct Problem {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    detail: String,
    request_id: String,
}

impl Server {
    /// Sends nothing yet.
    pub(crate) fn new(url: &str, arguments: &ServerArgs) -> anyhow::Result<Self> {
        let base = server_url(url)?;
        let loopback = is_loopback(&base);
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .redirect(reqwest::redirect::Policy::none());
        if base.scheme() == "http" {
            // Needs no certificates, which a small container may not have.
            builder = builder.tls_certs_only([]);
        }
        if loopback {
            builder = builder.no_proxy();
        }
        let key = arguments.key()?;
        if base.scheme() == "http" && !loopback {
            show::note(
                "wakeq: the server's URL begins with http://, so the key travels in the clear: prefer https://",
            );
        }
        let http = builder.build().map_err(|error| anyhow::anyhow!("no HTTP client: {}", causes(&error)))?;
        Ok(Self { http, base, key })
    }

    /// Sends a request about a canvas, and returns the body of its answer.
    pub(crate) async fn send(&self, request: &Request, canvas: CanvasId) -> Result<Vec<u8>, Failure> {
        let answer = self.answer(request, request.url(&self.base, canvas)).await?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(self.failure(&answer)) }
    }

    /// An answer whose body is not what it has to be.
    pub(crate) fn unreadable(&self, error: &serde_json::Error) -> Failure {
        Failure::Failed(format!(
            "{} returned an answer that this program can't read ({error}): is the server older or \
             newer?",
            self.base
        ))
    }

    async fn answer(&self, request: &Request, url: Url) -> Result<Answer, Failure> {
        // The same for all attempts.
        let repeat_key = request.repeatable.then(|| Uuid::new_v4().to_string());
        let (mut losses, mut waits) = (0, 0);
        loop {
            let answered = self.exchange(url.clone(), request, repeat_key.as_deref()).await;
            match &answered {
                Err(Failure::Unavailable(lost))
                    if (request.repeatable || request.method == Method::GET) && losses < LOSSES =>
                {
                    losses += 1;
                    tracing::info!(lost, "retrying once");
                }
                Ok(answer) if request.repeatable && answer.is_later() && waits < WAITS => {
                    waits += 1;
                    tracing::info!(status = %answer.status, "retrying after a pause");
                    tokio::time::sleep(answer.retry_after()).await;
                }
                Ok(_) | Err(_) => return answered,
            }
        }
    }

    async fn exchange(
        &self,
        url: Url,
        request: &Request,
        repeat_key: Option<&str>,
    ) -> Result<Answer, Failure> {
        let sent = self.http.request(request.method.clone(), url);
        let sent = sent.header("x-request-id", Uuid::now_v7().to_string());
        let mut sent = sent.header(AUTHORIZATION, self.key.clone());
        if let Some(key) = repeat_key {
            sent = sent.header("idempotency-key", key);
        }
        if let Some(body) = &request.body {
            sent = sent.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = sent.send().await.map_err(|error| self.lost(error))?;
        self.read(response).await
    }

    /// Opens the stream of events emitted on all canvases of the key.
    pub(crate) async fn listen(&self, pattern: &str) -> Result<reqwest::Response, Failure> {
        let mut url = request::below(&self.base, ["v1", "listen"]);
        url.query_pairs_mut().append_pair("pattern", pattern);
        let sent = self.http.get(url).header("x-request-id", Uuid::now_v7().to_string());
        let sent = sent.header(AUTHORIZATION, self.key.clone()).timeout(LISTEN_WITHIN);
        let opened = tokio::time::timeout(ANSWER_WITHIN, sent.send()).await;
        let late = |_| Failure::Unavailable(format!("{} did not answer in time", self.base));
        let response = opened.map_err(late)?.map_err(|error| self.lost(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.failure(&self.read(response).await?))
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<Answer, Failure> {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.lost(error))? {
            if body.len() + chunk.len() > ANSWER_MAX_BYTES {
                return Err(Failure::Failed(format!(
                    "the answer of {} is too large: ask for less at a time",
                    self.base
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body })
    }

    /// There was no answer, or an incomplete one.
    fn lost(&self, error: reqwest::Error) -> Failure {
        let what = if error.is_connect() {
            "is not reachable: check the URL, and that the server runs"
        } else if error.is_timeout() {
            "did not answer in time; the request may have taken effect"
        } else {
            "broke off its answer; the request may have taken effect"
        };
        Failure::Unavailable(format!("{} {what}: {}", self.base, causes(&error.without_url())))
    }

    /// The failure that an unsuccessful answer describes.
    fn failure(&self, answer: &Answer) -> Failure {
        let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let problem =
            kind.starts_with("application/problem+json").then(|| serde_json::from_slice(&answer.body));
        let words = match problem {
            Some(Ok(Problem { kind: _, title, detail, request_id })) => {
                format!("{title}: {detail} (request {request_id})")
            }
            Some(Err(_)) | None => return self.strange(answer),
        };
        Failure::of_status(answer.status.as_u16(), words)
    }

    /// An answer that is not wakeq's.
    fn strange(&self, answer: &Answer) -> Failure {
        let status = answer.status;
        match status.as_u16() {
            429 | 502..=504 => Failure::Unavailable(format!("{} answered {status}: try again", self.base)),
            401 | 403 => Failure::Refused(format!(
                "{} answered {status}, but not in wakeq's format: something in front of it requires \
                 a credential of its own",
                self.base
            )),
            _ => Failure::Failed(format!(
                "{} answered {status}, but not in wakeq's format: is this its URL?",
                self.base
            )),
        }
    }
}

fn server_url(text: &str) -> Result<Url, Failure> {
    let example = "a server's URL looks like https://queue.example, or http://127.0.0.1:8080";
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let mut url = url.ok_or_else(|| Failure::Usage(example.to_owned()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::Usage(
            "a server's URL must not contain a user or password: pass the key in WAKEQ_KEY".into(),
        ));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_servers_are_taken() {
        for text in ["localhost:8080", "queue.example", "ftp://queue.example", "http://", "", "/x"] {
            let refused = server_url(text).unwrap_err();
            assert!(refused.to_string().starts_with("a server's URL looks like"), "{text}: {refused}");
        }
        let refused = server_url("https://ada:secret@queue.example").unwrap_err().to_string();
        assert!(!refused.contains("secret") && refused.contains("user or password"), "{refused}");
        assert_eq!(
            server_url("https://queue.example/wakeq/?a=b#c").unwrap().as_str(),
            "https://queue.example/wakeq/"
        );
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let loopback = |text: &str| is_loopback(&Url::parse(text).unwrap());
        for text in ["http://localhost", "http://127.0.0.1:1", "http://127.8.0.1", "http://[::1]:80"] {
            assert!(loopback(text), "{text}");
        }
        for text in
            ["http://10.0.0.1", "http://localhost.example", "http://[::2]", "http://127.0.0.1.example"]
        {
            assert!(!loopback(text), "{text}");
        }
    }
}
