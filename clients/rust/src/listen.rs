//! The stream of events that the service receives, as server-sent events.

use std::time::Duration;

use reqwest::Response;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Client, Error, Method, Request};

/// A stream without data for this long is dead: a service sends something every 15 s.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum duration of listening.
const LISTEN_WITHIN: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum length of a stream's line: Pub/Sub has no larger messages.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An item of a stream.
#[derive(Debug)]
#[non_exhaustive]
pub enum Heard {
    /// An event that was emitted, as JSON: `id`, `canvasID`, `module`, `name`, `modifier`, `value`.
    Event(Box<RawValue>),
    /// Events were missed, if known this many.
    Missed(Option<u64>),
}

/// Events as they are emitted, on all canvases of the key. It never repeats missed events.
#[derive(Debug)]
pub struct Listening {
    client: Client,
    response: Response,
    lines: Lines,
}

impl Client {
    /// Listens for events whose topic, `canvas:module:name`, matches a pattern: `*` stands for any
    /// characters, `?` for one, `[abc]` for one of these.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::Heard;
    ///
    /// let mut listening = wakeq.listen("*:page:*").await?;
    /// while let Some(heard) = listening.next().await? {
    ///     if let Heard::Event(json) = heard {
    ///         println!("{json}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn listen(&self, pattern: &str) -> Result<Listening, Error> {
        let request = Request::new(Method::GET, "/v1/listen").query("pattern", pattern);
        let response = self.open(&request, LISTEN_WITHIN).await?;
        Ok(Listening { client: self.clone(), response, lines: Lines::default() })
    }
}

impl Listening {
    /// The next one; `None` when the stream has ended or broken off: listen again. Safe to cancel.
    ///
    /// Errors: [`Error::TooLarge`] for a line that no event has, so that it is not a service.
    pub async fn next(&mut self) -> Result<Option<Heard>, Error> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(heard) = self.lines.event.push_line(&line) {
                    return Ok(Some(heard));
                }
            }
            match tokio::time::timeout(SILENCE, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) if self.lines.add(&chunk) => {}
                Ok(Ok(Some(_))) => return Err(self.client.too_large()),
                Ok(Ok(None) | Err(_)) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Splits a stream into lines.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// There is no line break before this offset.
    scanned: usize,
    event: ServerSentEvent,
}

impl Lines {
    /// Whether there is room for it.
    fn add(&mut self, chunk: &[u8]) -> bool {
        let has_room = self.bytes.len() + chunk.len() <= LINE_BYTES_MAX;
        if has_room {
            self.bytes.extend_from_slice(chunk);
        }
        has_room
    }

    fn next(&mut self) -> Option<String> {
        let Some(end) = self.bytes[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.bytes.len();
            return None;
        };
        let line: Vec<u8> = self.bytes.drain(..=self.scanned + end).collect();
        self.scanned = 0;
        Some(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned())
    }
}

/// A server-sent event, as far as its lines have arrived.
#[derive(Debug, Default)]
struct ServerSentEvent {
    kind: String,
    data: String,
}

#[derive(Deserialize)]
struct Missed {
    count: Option<u64>,
}

impl ServerSentEvent {
    /// Returns what was received if this line completes it. Unknown kinds are skipped.
    fn push_line(&mut self, line: &str) -> Option<Heard> {
        if !line.is_empty() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.kind = value.to_owned(),
                "data" if self.data.is_empty() => self.data = value.to_owned(),
                "data" => self.data = format!("{}\n{value}", self.data),
                _ => {}
            }
            return None;
        }
        let Self { kind, data } = std::mem::take(self);
        match kind.as_str() {
            "emitted" => Some(Heard::Event(serde_json::from_str(&data).ok()?)),
            "missed" => Some(Heard::Missed(serde_json::from_str::<Missed>(&data).ok()?.count)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_from_any_chunks() {
        let body = r#"{"id":"00000000-0000-0000-0000-000000000001","value":"é"}"#;
        let text = format!(
            "retry: 1000\n\n: still here\n\nevent: emitted\nid: 1\ndata: {body}\n\nevent: other\ndata: 1\n\n\
             event: missed\ndata: {{\"count\":3}}\n\nevent: missed\ndata: {{\"count\":null}}\r\n\r\n"
        );
        for size in [1, 2, 7, text.len()] {
            let (mut lines, mut heard) = (Lines::default(), Vec::new());
            for chunk in text.as_bytes().chunks(size) {
                assert!(lines.add(chunk));
                while let Some(line) = lines.next() {
                    heard.extend(lines.event.push_line(&line));
                }
            }
            let [Heard::Event(event), Heard::Missed(Some(3)), Heard::Missed(None)] = &heard[..] else {
                panic!("{heard:?}")
            };
            assert_eq!(event.get(), body);
        }
    }

    #[test]
    fn rejects_an_overlong_line() {
        let mut lines = Lines::default();
        assert!(lines.add(&vec![b'x'; LINE_BYTES_MAX]));
        assert_eq!(lines.next(), None);
        assert!(!lines.add(b"x"));
    }
}
