//! `wakeq events tag`.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments;
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg};
use crate::resources::events::wire::{SetTags, TheEvent};
use wakeq::EventId;
use wakeq::events::Tag;

#[derive(Args)]
pub(crate) struct TagEvent {
    /// The event's id, or the id chosen for it when it was emitted
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    /// Its tags, in place of those that it has
    #[arg(value_name = "TAG", required_unless_present = "none")]
    tags: Vec<Tag>,
    /// Leave it without tags
    #[arg(long, conflicts_with = "tags")]
    none: bool,
    #[command(flatten)]
    json: JsonArg,
}

impl TagEvent {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (client, id) = (context.client().await?, self.id);
        let tags = self.tags.iter().map(Tag::to_string).collect();
        let request = Request::put(&["events", &id.to_string(), "tags"]).silent().body(&SetTags { tags })?;
        let done: TheEvent = client.call(request).await?;
        client.same(done, id)?;
        self.json.print(&TheEvent { id: id.0 }, |_| match self.tags.len() {
            0 => show::line(format_args!("{id} has no tags now")),
            tags => show::line(format_args!("{id} has {} now", show::count(tags as u64, "tag"))),
        })
    }
}
