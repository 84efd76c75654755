//! The options of `wakeq emit` by which an event asks for a policy of its own.

use std::time::Duration;

use clap::Args;

use crate::cli::arguments;
use crate::cli::given::keep_for;
use crate::resources::emit::wire::OptionsJson;
use crate::resources::targets::wire::keep::KeepJson;
use wakeq::Timestamp;
use wakeq::events::{Keep, Tag};
use wakeq::limits::LimitKey;

#[derive(Args)]
#[command(next_help_heading = "Options of the event")]
pub(super) struct OptionArgs {
    /// Retries after the first failure, at most 1000
    #[arg(long, value_name = "NUMBER")]
    retries: Option<u32>,
    /// Delays before the retries (1s,10s,10m)
    ///
    /// The last one counts for all further retries.
    #[arg(long, value_name = "DURATIONS", value_delimiter = ',', value_parser = humantime::parse_duration)]
    delays: Option<Vec<Duration>>,
    /// Cut an attempt off after this time (30s)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Start no attempt after it (2030-01-31T08:05:00Z)
    ///
    /// The event then dies of the cause `expired`.
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    not_after: Option<Timestamp>,
    /// Keep it after its end (7days), at most 90days
    ///
    /// Or for a time for each outcome: completed=7days,failed=30days,cancelled=1day.
    #[arg(long, value_name = "DURATION", value_parser = keep_for)]
    keep: Option<Keep>,
    /// Tag to find it by (customer:7); repeatable
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<Tag>,
    /// Key under which limits count it, too; repeatable
    ///
    /// Up to three different keys, such as customer:7. A key counts once a limit is set for it, or
    /// for the part before its first colon (`wakeq limits set`).
    #[arg(long = "limit", value_name = "KEY", conflicts_with = "only_to_queues")]
    limits: Vec<LimitKey>,
    /// Start it before events that are not urgent
    #[arg(long, conflicts_with = "only_to_queues")]
    urgent: bool,
}

impl OptionArgs {
    /// The options, if there are any.
    pub(super) fn json(self) -> Option<OptionsJson> {
        let seconds = |time: &Duration| time.as_secs_f64();
        let options = OptionsJson {
            retries: self.retries,
            delays_s: self.delays.map(|delays| delays.iter().map(seconds).collect()),
            timeout_s: self.timeout.as_ref().map(seconds),
            not_after: self.not_after,
            keep_s: self.keep.map(KeepJson::from),
            tags: self.tags.iter().map(Tag::to_string).collect(),
            limits: self.limits.iter().map(LimitKey::to_string).collect(),
            urgent: self.urgent,
        };
        (options != OptionsJson::default()).then_some(options)
    }
}
