//! Ended events: listed and counted while they are kept. A single one is shown as any event is.

use axum::Json;
use chrono::{DateTime, Utc};

use crate::access::Scope;
use crate::http::caller::{Call, Caller};
use crate::http::filter::{common_filter, event_query, one};
use crate::http::paging;
use crate::http::path::Parameters;
use crate::http::problem::{Answer, Problem};
use crate::resources::ended_events::wire::{EndedEventJson, Outcome};
use crate::resources::events::wire::EventCountJson;
use crate::resources::handlers::routes as handlers;
use crate::resources::wire::List;
use wakeq::control::EventFilter;
use wakeq::events::EndedFilter;

/// A query about ended events: the parameters of every list of events, and those that are about
/// their end.
macro_rules! ended_query {
    ($(#[$about:meta])* $name:ident { $($after:tt)* }) => {
        event_query! {
            $(#[$about])*
            $name {
                /// The handler's module; requires `name`. Default `WORKER`.
                #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
                module: Option<String>,
                /// Only events of this handler.
                #[param(pattern = "^[A-Za-z0-9_.-]{1,128}$")]
                name: Option<String>,
                /// Only events that ended like this.
                #[param(inline)]
                outcome: Option<Outcome>,
                /// Only events that ended at or after this time.
                since: Option<DateTime<Utc>>,
                /// Only events that ended before this time.
                before: Option<DateTime<Utc>>,
                /// Only events whose result contains this text, as it was recorded.
                #[param(max_length = 200)]
                result_text: Option<String>,
                /// Only events whose result has a scalar at a path: `$.receipt = 9`.
                #[param(max_length = 4000)]
                result: Option<String>,
            } .. { $($after)* }
        }

        impl $name {
            fn filter(&self, caller: &Caller) -> Result<EndedFilter, Problem> {
                let common: EventFilter = common_filter!(self);
                Ok(EndedFilter {
                    canvas: caller.canvas,
                    scope: handlers::scope(caller, self.module.as_deref(), self.name.as_deref())?,
                    outcome: self.outcome.map(Into::into),
                    modifier: common.modifier,
                    tags: common.tags,
                    object: common.object,
                    batch: common.batch,
                    emitted_since: common.emitted_since,
                    emitted_before: common.emitted_before,
                    ended_since: self.since,
                    ended_before: self.before,
                    error_text: common.error_text,
                    value_text: common.value_text,
                    value: common.value,
                    result_text: one(self.result_text.as_deref())?,
                    result: one(self.result.as_deref())?,
                })
            }
        }
    };
}

ended_query! {
    /// Which ended events to list, and which page of them.
    EndedQuery {
        /// Maximum number of items. Default 100.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<u32>,
        /// The `next_cursor` of the previous page.
        #[param(max_length = 400)]
        cursor: Option<String>,
    }
}

ended_query! {
    /// Which ended events to count, and where to go on.
    CountQuery {
        /// The `next_cursor` of the previous count.
        #[param(max_length = 400)]
        cursor: Option<String>,
    }
}

/// List ended events
///
/// Those that are kept, because their emit, their handler's route or their target asks for it. The
/// latest come first. They can be filtered by handler, outcome, tags, object, batch, times, error,
/// value and result. A page examines at most 5,000 events, or 2,500 and 8 MiB of values and results
/// if errors, values or results are searched, so it may be short or even empty while `next_cursor`
/// is set. `looked_at` is how many it has examined. Dead events are in a list of their own.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/ended-events", operation_id = "list_ended_events",
    tag = "ended events", params(EndedQuery),
    responses((status = 200, description = "A page of ended events", body = List<EndedEventJson>)))]
pub(crate) async fn list(
    Call { api, caller }: Call,
    Parameters(query): Parameters<EndedQuery>,
) -> Answer<List<EndedEventJson>> {
    let filter = query.filter(&caller)?;
    let (limit, cursor) = (paging::limit(query.limit)?, paging::cursor(query.cursor.as_deref())?);
    Ok(Json(caller.admin(&api, Scope::Read).ended(&filter, cursor.as_ref(), limit).await?.into()))
}

/// Count ended events
///
/// Counts those that are kept and meet the filter, among as many as a page of the list examines.
/// While `next_cursor` is set, there may be more: `count` is the least number. To go on, repeat the
/// request with it, and add the counts.
#[utoipa::path(get, path = "/v1/canvases/{canvas}/ended-events/count", operation_id = "count_ended_events",
    tag = "ended events", params(CountQuery),
    responses((status = 200, description = "How many there are at least", body = EventCountJson)))]
pub(crate) async fn count(
    Call { api, caller }: Call,
    Parameters(query): Parameters<CountQuery>,
) -> Answer<EventCountJson> {
    let filter = query.filter(&caller)?;
    let cursor = paging::cursor(query.cursor.as_deref())?;
    Ok(Json(caller.admin(&api, Scope::Read).count_ended(&filter, cursor.as_ref()).await?.into()))
}
