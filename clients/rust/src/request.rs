//! A request of the API, by method and path as in its OpenAPI document.

use std::fmt::Display;

use serde::Serialize;
use url::{Position, Url};
use uuid::Uuid;

use crate::Error;

pub use reqwest::Method;

/// The slot that the client fills by itself.
const CANVAS: &str = "canvas";

/// A request to be sent with [`Client::request`](crate::Client::request).
///
/// ```
/// use wakeq_client::{Method, Request};
///
/// let request = Request::new(Method::GET, "/v1/canvases/{canvas}/handlers/{module}/{name}/stats")
///     .path("module", "WORKER")
///     .path("name", "greet")
///     .query("window", "1h");
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) method: Method,
    segments: Vec<Segment>,
    query: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) repeatable: bool,
    pub(crate) retries: Option<u32>,
}

#[derive(Clone, Debug)]
enum Segment {
    Text(String),
    /// `{name}`.
    Slot(String),
}

impl Request {
    /// A request of a path such as `/v1/canvases/{canvas}/events/{id}`. `{canvas}` is the client's,
    /// unless another one is given. One that only reads may be repeated.
    pub fn new(method: Method, path: &str) -> Self {
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        let slot = |segment: &str| Some(segment.strip_prefix('{')?.strip_suffix('}')?.to_owned());
        let segments = segments
            .map(|segment| slot(segment).map_or_else(|| Segment::Text(segment.into()), Segment::Slot));
        Self {
            repeatable: method == Method::GET,
            method,
            segments: segments.collect(),
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            retries: None,
        }
    }

    /// Fills `{name}` in the path. The value may contain any character.
    pub fn path(mut self, name: &str, value: impl Display) -> Self {
        let value = value.to_string();
        for segment in &mut self.segments {
            if matches!(segment, Segment::Slot(slot) if slot == name) {
                *segment = Segment::Text(value.clone());
            }
        }
        self
    }

    /// Adds a segment at the end of the path.
    pub fn segment(mut self, value: impl Display) -> Self {
        self.segments.push(Segment::Text(value.to_string()));
        self
    }

    /// Adds a parameter of the query.
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    /// Asks for a page of a list.
    pub(crate) fn page(self, limit: u32, cursor: Option<&str>) -> Self {
        let request = self.query("limit", limit);
        match cursor {
            Some(cursor) => request.query("cursor", cursor),
            None => request,
        }
    }

    /// Sets the body, as JSON text.
    pub fn body(self, json: impl Into<Vec<u8>>) -> Self {
        Self { body: Some(json.into()), ..self }
    }

    /// Sets the body.
    pub fn json(self, value: &impl Serialize) -> Result<Self, Error> {
        let json = serde_json::to_vec(value);
        Ok(self.body(json.map_err(|error| Error::Invalid(format!("the body can't be written: {error}")))?))
    }

    /// Sets the idempotency key, 1 to 255 visible ASCII characters: within 24 hours, requests with
    /// the same key take effect once. So the request may be repeated.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), repeatable: true, ..self }
    }

    /// Says that it may be sent again although its answer was lost.
    pub fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    /// Sets how often it is sent again, instead of the client's number.
    pub fn retries(self, retries: u32) -> Self {
        Self { retries: Some(retries), ..self }
    }

    /// Its path and query, about this canvas.
    ///
    /// Errors: [`Error::Invalid`] for a slot that is not filled, or a value that leads elsewhere.
    pub fn path_and_query(&self, canvas: Uuid) -> Result<String, Error> {
        let anywhere = Url::parse("http://localhost").map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(self.url(&anywhere, canvas)?[Position::BeforePath..].to_owned())
    }

    /// Whether its idempotency key is one: anything else can't be sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_key =
            |key: &String| (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        if self.idempotency_key.as_ref().is_none_or(is_key) {
            return Ok(());
        }
        Err(Error::Invalid("an idempotency key is 1 to 255 visible ASCII characters".to_owned()))
    }

    /// Its URL below that of the service.
    pub(crate) fn url(&self, service: &Url, canvas: Uuid) -> Result<Url, Error> {
        let mut url = service.clone();
        {
            let mut path = url
                .path_segments_mut()
                .map_err(|()| Error::Invalid("the service's URL has no path".into()))?;
            path.pop_if_empty();
            for segment in &self.segments {
                match segment {
                    // They would lead to another path.
                    Segment::Text(text) if matches!(text.as_str(), "" | "." | "..") => {
                        return Err(Error::Invalid(format!("a part of the path can't be `{text}`")));
                    }
                    Segment::Text(text) => path.push(text),
                    Segment::Slot(name) if name == CANVAS => path.push(&canvas.to_string()),
                    Segment::Slot(name) => {
                        return Err(Error::Invalid(format!("the path needs `{name}`")));
                    }
                };
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(request: &Request) -> Result<String, String> {
        let service = Url::parse("https://queue.example/base/").unwrap();
        request.url(&service, Uuid::nil()).map(Into::into).map_err(|error| error.to_string())
    }

    #[test]
    fn values_stay_in_their_segment() {
        let event = Request::new(Method::GET, "/v1/canvases/{canvas}/events/{id}");
        assert_eq!(
            url(&event.clone().path("id", "a/b?c#d {canvas}").query("view", "f&l")).unwrap(),
            "https://queue.example/base/v1/canvases/00000000-0000-0000-0000-000000000000/events/\
             a%2Fb%3Fc%23d%20%7Bcanvas%7D?view=f%26l"
        );
        assert_eq!(url(&event).unwrap_err(), "the path needs `id`");
        for value in ["", ".", ".."] {
            let refused = url(&event.clone().path("id", value)).unwrap_err();
            assert_eq!(refused, format!("a part of the path can't be `{value}`"));
        }
        let other = event.path("canvas", 7).path("id", 8);
        assert_eq!(url(&other).unwrap(), "https://queue.example/base/v1/canvases/7/events/8");
    }

    #[test]
    fn a_key_that_can_t_be_sent_is_refused() {
        let keyed = |key: &str| Request::new(Method::POST, "/v1").idempotency_key(key).check();
        assert!(keyed("order-17").is_ok() && keyed(&"x".repeat(255)).is_ok());
        for key in ["", "a b", "a\n", "é", &"x".repeat(256)] {
            assert!(matches!(keyed(key), Err(Error::Invalid(_))), "{key:?}");
        }
    }

    #[test]
    fn a_verb_is_part_of_its_segment() {
        let batch = Request::new(Method::POST, "/v1/events:batch").segment("x");
        assert_eq!(url(&batch).unwrap(), "https://queue.example/base/v1/events:batch/x");
    }
}
