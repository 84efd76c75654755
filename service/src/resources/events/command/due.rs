//! `wakeq events reschedule`.

use std::time::Duration;

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments;
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg, moment};
use crate::resources::events::wire::TheEvent;
use crate::resources::events::wire::due::{DueEvent, SetDue};
use wakeq::{EventId, Timestamp};

#[derive(Args)]
pub(crate) struct Reschedule {
    /// The event's id, or the id chosen for it when it was emitted
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    /// Due at this time (2030-01-31T08:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp, required_unless_present = "after")]
    at: Option<Timestamp>,
    /// Due this long from now (30s, 5m, 2days)
    #[arg(long, value_name = "AFTER", value_parser = humantime::parse_duration, conflicts_with = "at")]
    after: Option<Duration>,
    #[command(flatten)]
    json: JsonArg,
}

impl Reschedule {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let due = SetDue { delay_until: self.at, delay_s: self.after.map(|delay| delay.as_secs_f64()) };
        let done = context.client().await?.set_due(self.id, &due).await?;
        self.json.print(&done, |done| {
            show::line(format_args!("{} is due at {}", self.id, moment(done.delay_until)))
        })
    }
}

impl Client {
    pub(crate) async fn set_due(&self, id: EventId, due: &SetDue) -> anyhow::Result<DueEvent> {
        let done: DueEvent = self.call(Request::put(&["events", &id.to_string(), "due"]).body(due)?).await?;
        self.same(TheEvent { id: done.id }, id)?;
        Ok(done)
    }
}
