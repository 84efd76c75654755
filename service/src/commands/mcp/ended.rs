//! The arguments of the tool that lists kept events. It must never ask for more than a page.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::page;
use super::filter::{Among, EventFilter};
use crate::cli::client::Request;
use crate::resources::events::command::filter::text;
use wakeq::Timestamp;

/// Which events that are kept after they have ended to list, and which page of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ListEnded {
    #[serde(default)]
    filter: EventFilter,
    /// How they ended: completed, failed or cancelled.
    outcome: Option<String>,
    /// Ended at or after this time, such as 2030-01-31T08:00:00Z.
    ended_since: Option<Timestamp>,
    /// Ended before this time.
    ended_before: Option<Timestamp>,
    /// Text in their result.
    result_text: Option<String>,
    /// A scalar at a path of their result, such as `$.receipt = 9`.
    result: Option<String>,
    /// Maximum number of items. Default 20.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl ListEnded {
    pub(super) fn request(self) -> anyhow::Result<Request> {
        let request = Request::get(&["ended-events"])
            .query("outcome", self.outcome)
            .query("since", text(self.ended_since))
            .query("before", text(self.ended_before))
            .query("result_text", self.result_text)
            .query("result", self.result);
        Ok(self.filter.add_to(request, Among::Ended)?.page(page(self.limit, self.cursor)?))
    }
}
