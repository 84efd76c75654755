//! The events for `tail`: from the broker, or from a server's stream, which is reopened when it
//! ends.

use std::time::Duration;

use wakeq_client::{Heard, Listening};

use super::server::Server;
use crate::cli::failure::Failure;
use crate::cli::show;
use wakeq::listeners::{Broadcast, ListenItem, Listener};

/// The pause before a stream is reopened, and how often this may fail in a row.
const PAUSE: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;

/// Where events are received from.
pub(crate) enum EventFeed {
    Broker(Listener),
    Server(Box<Stream>),
}

/// A server's stream of events.
pub(crate) struct Stream {
    server: Server,
    pattern: String,
    listening: Listening,
}

impl EventFeed {
    pub(crate) fn broker(listener: Listener) -> Self {
        Self::Broker(listener)
    }

    pub(crate) async fn server(server: Server, pattern: &str) -> Result<Self, Failure> {
        let listening = server.listen(pattern).await?;
        let stream = Stream { server, pattern: pattern.to_owned(), listening };
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
            match self.listening.next().await.map_err(Failure::from)? {
                Some(Heard::Event(json)) => {
                    // Messages that this version can't read are skipped.
                    if let Ok(event) = Broadcast::parse(json.get().as_bytes()) {
                        return Ok(ListenItem::Event(Box::new(event)));
                    }
                }
                Some(Heard::Missed(count)) => return Ok(ListenItem::Missed(count)),
                Some(_) => {}
                None => self.reopen().await?,
            }
        }
    }

    async fn reopen(&mut self) -> anyhow::Result<()> {
        show::note("wakeq: the server ended the stream; listening again, and events may have been missed");
        for attempt in 1.. {
            tokio::time::sleep(PAUSE).await;
            match self.server.listen(&self.pattern).await {
                Ok(listening) => {
                    self.listening = listening;
                    break;
                }
                Err(Failure::Unavailable(_)) if attempt < TRIES => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }
}
