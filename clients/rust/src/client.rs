//! Requests with a key, answers within limits of size and time, problem details as errors.
//!
//! It must never show the key, follow a redirect with it, or repeat a request that is not safe to
//! repeat.

use std::fmt;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;
use uuid::Uuid;

use crate::error::causes;
use crate::{Error, Problem, Request};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Default time limit of a whole request. A bulk request of 10,000 takes seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Maximum bytes of an answer, for a page of events with long errors or a value of the maximum
/// size.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// An ID token has about 1 KiB.
const KEY_BYTES_MAX: usize = 8 * 1024;
/// The first pause before a request is sent again; each following one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);
/// Longer pauses are the caller's decision.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
const RETRIES_MAX: u32 = 10;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The API of a service, for one canvas. Cheap to clone: clones share their connections.
///
/// ```
/// # fn example() -> Result<(), wakeq_client::Error> {
/// let wakeq = wakeq_client::Client::new("https://queue.example", "wakeq_…")?.retries(5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    service: Url,
    key: HeaderValue,
    canvas: Uuid,
    timeout: Duration,
    retries: u32,
}

/// Without the key.
impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Client");
        shown.field("service", &self.service.as_str()).field("canvas", &self.canvas).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the service at a URL such as `https://queue.example`, for the default canvas,
    /// the nil UUID. The key is `wakeq_…` or a Google ID token. Sends nothing yet.
    ///
    /// It uses the proxy that the environment names, except for this machine. Over `http://` the
    /// key travels in the clear.
    ///
    /// Errors: [`Error::Invalid`] for a URL of another kind, or a key with blanks.
    pub fn new(url: &str, key: &str) -> Result<Self, Error> {
        let service = service_url(url)?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .redirect(reqwest::redirect::Policy::none());
        if service.scheme() == "http" {
            // Needs no certificates, which a small container may not have.
            builder = builder.tls_certs_only([]);
        }
        if is_loopback(&service) {
            builder = builder.no_proxy();
        }
        let http =
            builder.build().map_err(|error| Error::Invalid(format!("no HTTP client: {}", causes(&error))))?;
        let key = header_of(key)?;
        Ok(Self { http, service, key, canvas: Uuid::nil(), timeout: ANSWER_WITHIN, retries: 2 })
    }

    /// The same, with another key: an ID token lasts an hour.
    pub fn key(self, key: &str) -> Result<Self, Error> {
        Ok(Self { key: header_of(key)?, ..self })
    }

    /// The same, for another canvas.
    pub fn canvas(self, canvas: Uuid) -> Self {
        Self { canvas, ..self }
    }

    /// Sets how long to wait for each answer. Default 60 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how often a request is sent again after a temporary error, if that is safe: 0 to 10,
    /// default 2. The pauses are 0.2 s, 0.4 s and so on, or what the service asks for, up to 30 s.
    pub fn retries(self, retries: u32) -> Self {
        Self { retries: retries.min(RETRIES_MAX), ..self }
    }

    /// Whether the key travels in the clear to another machine.
    pub fn is_in_the_clear(&self) -> bool {
        self.service.scheme() == "http" && !is_loopback(&self.service)
    }

    /// Sends any request of the API, and parses its answer.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::{Method, Request};
    ///
    /// let quotas = Request::new(Method::GET, "/v1/canvases/{canvas}/quotas").query("limit", 10);
    /// let answer: serde_json::Value = wakeq.request(&quotas).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        self.parse(&self.send(request).await?)
    }

    /// The same, for an answer without a body or one that is not parsed: its bytes.
    pub async fn send(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let url = request.url(&self.service, self.canvas)?;
        request.check()?;
        let retries = request.retries.unwrap_or(self.retries);
        let mut attempt = 0;
        loop {
            let error = match self.attempt(request, url.clone()).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let is_safe = request.repeatable || error.had_no_effect();
            let pause = pause_before(attempt, &error);
            if attempt >= retries || !is_safe || !error.is_temporary() || pause > RETRY_AFTER_MAX {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    /// Parses the body of an answer.
    pub fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(body)
            .map_err(|cause| Error::Unreadable { url: self.service.to_string(), cause })
    }

    async fn attempt(&self, request: &Request, url: Url) -> Result<Vec<u8>, Error> {
        let mut sent = self.http.request(request.method.clone(), url).timeout(self.timeout);
        sent = sent.headers(self.headers());
        if let Some(key) = &request.idempotency_key {
            sent = sent.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(body) = &request.body {
            sent = sent.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = sent.send().await.map_err(|error| self.lost(error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.read(response).await?;
        if status.is_success() { Ok(body) } else { Err(self.refused(status, &headers, &body)) }
    }

    /// Opens an answer that does not end.
    pub(crate) async fn open(&self, request: &Request, at_most: Duration) -> Result<Response, Error> {
        let url = request.url(&self.service, self.canvas)?;
        let sent = self.http.request(request.method.clone(), url).headers(self.headers()).timeout(at_most);
        let late = || Error::Lost { url: self.service.to_string(), timed_out: true, cause: String::new() };
        let opened = tokio::time::timeout(self.timeout, sent.send()).await.map_err(|_| late())?;
        let response = opened.map_err(|error| self.lost(error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return Ok(response);
        }
        Err(self.refused(status, &headers, &self.read(response).await?))
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(AUTHORIZATION, self.key.clone())]);
        headers.extend(HeaderValue::from_str(&Uuid::now_v7().to_string()).map(|id| (REQUEST_ID, id)));
        headers
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.lost(error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(self.too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(crate) fn too_large(&self) -> Error {
        Error::TooLarge { url: self.service.to_string() }
    }

    /// There was no answer, or not all of it.
    fn lost(&self, error: reqwest::Error) -> Error {
        let (url, is_connect, timed_out) = (self.service.to_string(), error.is_connect(), error.is_timeout());
        let cause = causes(&error.without_url());
        if is_connect { Error::Unreachable { url, cause } } else { Error::Lost { url, timed_out, cause } }
    }

    /// The error that an unsuccessful answer reports.
    fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let problem = kind.starts_with("application/problem+json").then(|| serde_json::from_slice(body));
        let status = status.as_u16();
        match problem {
            Some(Ok(problem)) => {
                let retry_after =
                    headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                let retry_after = retry_after.map(Duration::from_secs);
                Error::Refused(Box::new(Problem { status, retry_after, ..problem }))
            }
            Some(Err(_)) | None => Error::Unexpected { url: self.service.to_string(), status },
        }
    }
}

/// Exponential, with jitter; longer if the service asks for it.
fn pause_before(attempt: u32, error: &Error) -> Duration {
    let backoff = PAUSE * 2_u32.pow(attempt);
    let jitter = backoff.mul_f64(f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0);
    let asked = if let Error::Refused(problem) = error { problem.retry_after } else { None };
    (backoff + jitter).max(asked.unwrap_or_default())
}

fn header_of(key: &str) -> Result<HeaderValue, Error> {
    let is_visible = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::from_str(&format!("Bearer {key}")).ok();
    let header = header.filter(|_| is_visible && key.len() <= KEY_BYTES_MAX);
    let invalid = || Error::Invalid("the key contains characters that are not allowed in a key".into());
    let mut header = header.ok_or_else(invalid)?;
    header.set_sensitive(true);
    Ok(header)
}

fn service_url(text: &str) -> Result<Url, Error> {
    let example = "a server's URL looks like https://queue.example, or http://127.0.0.1:8080";
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let mut url = url.ok_or_else(|| Error::Invalid(example.to_owned()))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Invalid(
            "a server's URL must not contain a user or password: pass a key instead".to_owned(),
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
    fn only_urls_of_services_are_taken() {
        for text in ["localhost:8080", "queue.example", "ftp://queue.example", "http://", "", "/x"] {
            let refused = service_url(text).unwrap_err();
            assert!(refused.to_string().starts_with("a server's URL looks like"), "{text}: {refused}");
        }
        let refused = service_url("https://ada:secret@queue.example").unwrap_err().to_string();
        assert!(!refused.contains("secret") && refused.contains("user or password"), "{refused}");
        assert_eq!(
            service_url("https://queue.example/wakeq/?a=b#c").unwrap().as_str(),
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

    #[test]
    fn a_key_is_visible_text_and_does_not_show() {
        for key in ["", "wakeq 1", "wakeq_1\n", "schlüssel", &"x".repeat(KEY_BYTES_MAX + 1)] {
            let refused = Client::new("https://queue.example", key).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        }
        let client = Client::new("https://queue.example", "wakeq_5ecre7").unwrap();
        assert!(!format!("{client:?}").contains("5ecre7"), "{client:?}");
    }

    #[test]
    fn pauses_grow_and_follow_what_is_asked() {
        let lost = Error::Lost { url: String::new(), timed_out: true, cause: String::new() };
        for attempt in 0..3 {
            let (least, pause) = (PAUSE * 2_u32.pow(attempt), pause_before(attempt, &lost));
            assert!((least..=least * 2).contains(&pause), "{pause:?}");
        }
    }
}
