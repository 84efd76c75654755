//! `wakeq tail`: prints events as they are emitted, received from Pub/Sub or a server, until
//! Ctrl-C.
//!
//! Changes nothing, and needs no database.

use anyhow::Context as _;
use clap::Args;

use crate::cli::client::{EventFeed, Server, ServerChoice};
use crate::cli::failure::Failure;
use crate::cli::show::{self, JsonArg};
use crate::cli::{Context, text};
use wakeq::listeners::{Broadcast, ListenError, ListenItem, TopicPattern};
use wakeq::shutdown_signal;

#[derive(Args)]
pub(crate) struct Tail {
    /// Topics (canvas:module:name) to print: `*` matches any characters, `?` one, `[abc]` one of
    /// these
    #[arg(default_value = "*")]
    pattern: TopicPattern,
    /// Exit after this many events
    #[arg(long, value_name = "EVENTS")]
    count: Option<u64>,
    #[command(flatten)]
    json: JsonArg,
}

impl Tail {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let signal = shutdown_signal().context("listen for SIGTERM")?;
        let mut feed = self.open(context).await?;
        show::note(format_args!("listening to {}; Ctrl-C ends it", text::clean(self.pattern.as_str())));
        let ended = tokio::select! {
            ended = self.follow(&mut feed) => ended,
            () = signal => Ok(()),
        };
        feed.close().await;
        ended
    }

    async fn open(&self, context: &Context) -> anyhow::Result<EventFeed> {
        match context.server.choice() {
            ServerChoice::Flag(url) | ServerChoice::Environment(url) => {
                let server = Server::new(&url, &context.server)?;
                Ok(EventFeed::server(server, self.pattern.as_str()).await?)
            }
            ServerChoice::Unset => {
                if context.notifier.is_local() {
                    let words = "with --notifier local (WAKEQ_NOTIFIER) only the process that emits can listen: ask its \
                                 server (WAKEQ_SERVER)";
                    return Err(Failure::Usage(words.to_owned()).into());
                }
                let store = async || context.store().await;
                let broadcasts = context.notifier.connect_to_listen(store).await?.ok_or(ListenError::Off)?;
                Ok(EventFeed::broker(broadcasts.subscribe(self.pattern.as_str()).await?))
            }
        }
    }

    async fn follow(&self, feed: &mut EventFeed) -> anyhow::Result<()> {
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            match feed.next().await? {
                Some(ListenItem::Event(event)) => {
                    self.print(&event)?;
                    left -= 1;
                }
                Some(ListenItem::Missed(Some(count))) => {
                    let events = show::count(count, "event");
                    show::note(format_args!("wakeq: missed {events}, which came faster than they were read"));
                }
                Some(ListenItem::Missed(None)) => {
                    show::note("wakeq: an unknown number of events was missed");
                }
                None => anyhow::bail!("no more events can be received"),
            }
        }
        Ok(())
    }

    fn print(&self, event: &Broadcast) -> anyhow::Result<()> {
        if self.json.is_set() {
            return show::line(text::clean_json(&event.body()));
        }
        let modifier = match event.address.modifier.as_str() {
            "_" => String::new(),
            modifier => format!("/{modifier}"),
        };
        let value = event.value.as_deref().map_or("(too large)".to_owned(), text::clean);
        show::line(format_args!("{}  {}{modifier}  {value}", event.id, event.topic()))
    }
}
