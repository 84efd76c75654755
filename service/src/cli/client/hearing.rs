//! The events for `tail`: from the broker, or from a server's stream, which is reopened when it
//! ends.

use std::time::Duration;

use serde::Deserialize;

use super::server::Server;
use crate::cli::failure::Failure;
use crate::cli::show;
use wakeq::listeners::{Broadcast, ListenItem, Listener};

/// A stream without data for this long is dead: a server sends something every 15 s.
const SILENCE: Duration = Duration::from_secs(60);
/// The pause before a stream is reopened, and how often this may fail in a row.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;
/// Maximum length of a stream's line: Pub/Sub has no larger messages.
const LINE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Where events are received from.
pub(crate) enum EventFeed {
    Broker(Listener),
    Server(Box<Stream>),
}

/// A server's stream of events.
pub(crate) struct Stream {
    server: Server,
    pattern: String,
    response: reqwest::Response,
    lines: Lines,
}

impl EventFeed {
    pub(crate) fn broker(listener: Listener) -> Self {
        Self::Broker(listener)
    }

    pub(crate) async fn server(server: Server, pattern: &str) -> Result<Self, Failure> {
        let response = server.listen(pattern).await?;
        let stream = Stream { server, pattern: pattern.to_owned(), response, lines: Lines::default() };
        Ok(Self::Server(Box::new(stream)))
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<ListenItem>> {
        match self {
            Self::Broker(listener) => Ok(listener.next().await),
            Self::Server(stream) => stream.next().await.map(Some),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Broker(listener) => listener.close().await,
            // The server deletes the subscription when the connection ends.
            Self::Server(stream) => drop(stream),
        }
    }
}

impl Stream {
    async fn next(&mut self) -> anyhow::Result<ListenItem> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(heard) = self.lines.event.push_line(&line) {
                    return Ok(heard);
                }
            }
            match tokio::time::timeout(SILENCE, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => self.lines.add(&chunk)?,
                Ok(Ok(None) | Err(_)) | Err(_) => self.reopen().await?,
            }
        }
    }

    async fn reopen(&mut self) -> anyhow::Result<()> {
        show::note("wakeq: the server ended the stream; listening again, and events may have been missed");
        self.lines = Lines::default();
        for attempt in 1.. {
            tokio::time::sleep(PAUSE).await;
            match self.server.listen(&self.pattern).await {
                Ok(response) => {
                    self.response = response;
                    break;
                }
                Err(Failure::Unavailable(_)) if attempt < TRIES => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }
}

/// Splits a stream into lines.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// There is no line break before this offset.
    scanned: usize,
    event: ServerSentEvent,
}

impl Lines {
    fn add(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        if self.bytes.len() + chunk.len() > LINE_MAX_BYTES {
            return Err(Failure::Failed(
                "the server sent a line that is too long: is it a wakeq server?".into(),
            ));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
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
#[derive(Default)]
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
    fn push_line(&mut self, line: &str) -> Option<ListenItem> {
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
            "emitted" => Some(ListenItem::Event(Box::new(Broadcast::parse(data.as_bytes()).ok()?))),
            "missed" => Some(ListenItem::Missed(serde_json::from_str::<Missed>(&data).ok()?.count)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_from_any_chunks() {
        let body = r#"{"id":"00000000-0000-0000-0000-000000000001","canvasID":"00000000-0000-0000-0000-000000000000","module":"page","name":"view","modifier":"_","value":"é","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#;
        let text = format!(
            "retry: 1000\n\n: still here\n\nevent: emitted\nid: 1\ndata: {body}\n\nevent: other\ndata: 1\n\n\
             event: missed\ndata: {{\"count\":3}}\n\nevent: missed\ndata: {{\"count\":null}}\r\n\r\n"
        );
        for size in [1, 2, 7, text.len()] {
            let (mut lines, mut heard) = (Lines::default(), Vec::new());
            for chunk in text.as_bytes().chunks(size) {
                lines.add(chunk).unwrap();
                while let Some(line) = lines.next() {
                    heard.extend(lines.event.push_line(&line));
                }
            }
            let event = Box::new(Broadcast::parse(body.as_bytes()).unwrap());
            assert_eq!(
                heard,
                [ListenItem::Event(event), ListenItem::Missed(Some(3)), ListenItem::Missed(None)]
            );
        }
    }

    #[test]
    fn rejects_an_overlong_line() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; LINE_MAX_BYTES];
        lines.add(&chunk).unwrap();
        assert_eq!(lines.next(), None);
        assert!(lines.add(b"x").is_err());
    }
}
