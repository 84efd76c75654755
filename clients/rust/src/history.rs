//! The history of events: attempts, and events that are kept after they have ended.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use uuid::Uuid;

use crate::search::at;
use crate::{Client, Error, EventCount, Method, Page, Request};

const ENDED: &str = "/v1/canvases/{canvas}/ended-events";

/// An attempt at an event that failed or was too early.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// What came of it: `retried`, `postponed` or `dead`.
    pub outcome: String,
    /// The worker that made it.
    pub worker: Option<String>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Its error.
    pub error: Option<String>,
}

/// An event that has ended, and is kept for a while.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct EndedEvent {
    /// The event's id.
    pub id: Uuid,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The handler's modifier.
    pub modifier: String,
    /// How it ended: `completed`, `failed` or `cancelled`.
    pub outcome: String,
    /// Its error value, or else the last error before it ended.
    pub error: Option<String>,
    /// Who cancelled it.
    pub cancelled_by: Option<String>,
    /// When it was emitted.
    pub enqueued_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// Until when it is kept.
    pub kept_until: DateTime<Utc>,
    /// How long the attempt took that ended it, in seconds.
    pub took_s: Option<f64>,
    /// Whether its handler has recorded a result.
    pub has_result: bool,
    /// Its tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The batch that it was a member of.
    pub batch: Option<String>,
}

/// Selects ended events: those that match all fields that are set, and by default all of the
/// canvas.
///
/// ```
/// use wakeq_client::EndedFilter;
///
/// let filter = EndedFilter {
///     outcome: Some("failed".into()),
///     tags: vec!["customer:7".into()],
///     result: Some("$.receipt = 9".into()),
///     ..EndedFilter::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct EndedFilter {
    /// The handler's module; requires `name`. Default `WORKER`.
    pub module: Option<String>,
    /// Only events of this handler.
    pub name: Option<String>,
    /// Only those that ended like this: `completed`, `failed` or `cancelled`.
    pub outcome: Option<String>,
    /// The handler's modifier.
    pub modifier: Option<String>,
    /// With all of these tags.
    pub tags: Vec<String>,
    /// On this object.
    pub object: Option<String>,
    /// Members of this batch.
    pub batch: Option<String>,
    /// Emitted at or after this time.
    pub emitted_since: Option<DateTime<Utc>>,
    /// Emitted before this time.
    pub emitted_before: Option<DateTime<Utc>>,
    /// Ended at or after this time.
    pub ended_since: Option<DateTime<Utc>>,
    /// Ended before this time.
    pub ended_before: Option<DateTime<Utc>>,
    /// Whose error contains this text.
    pub error_text: Option<String>,
    /// Whose value contains this text, as it was emitted.
    pub value_text: Option<String>,
    /// Whose value has a scalar at a path: `$.customer.id = "7"`.
    pub value: Option<String>,
    /// Whose result contains this text, as it was recorded.
    pub result_text: Option<String>,
    /// Whose result has a scalar at a path: `$.receipt = 9`.
    pub result: Option<String>,
}

impl EndedFilter {
    fn add_to(&self, request: Request) -> Request {
        let moments = [
            ("since", self.ended_since),
            ("before", self.ended_before),
            ("emitted_since", self.emitted_since),
            ("emitted_before", self.emitted_before),
        ];
        let moments =
            moments.into_iter().map(|(name, moment)| (name, moment.map(|moment| moment.to_rfc3339())));
        let texts = [
            ("module", self.module.clone()),
            ("name", self.name.clone()),
            ("outcome", self.outcome.clone()),
            ("modifier", self.modifier.clone()),
            ("tag", (!self.tags.is_empty()).then(|| self.tags.join(","))),
            ("object", self.object.clone()),
            ("batch", self.batch.clone()),
            ("error_text", self.error_text.clone()),
            ("value_text", self.value_text.clone()),
            ("value", self.value.clone()),
            ("result_text", self.result_text.clone()),
            ("result", self.result.clone()),
        ];
        let given = moments.chain(texts).filter_map(|(name, text)| Some((name, text?)));
        given.fold(request, |request, (name, text)| request.query(name, text))
    }
}

impl Client {
    /// A page of events that have ended, are kept and match a filter, the latest first. Pass its
    /// `next_cursor`, with the same filter, for the next one. A page may be short or empty although
    /// more follow.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::EndedFilter;
    ///
    /// let filter = EndedFilter { outcome: Some("failed".into()), ..EndedFilter::default() };
    /// let page = wakeq.ended_events(&filter, 100, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended_events(
        &self,
        filter: &EndedFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<EndedEvent>, Error> {
        let request = filter.add_to(Request::new(Method::GET, ENDED).query("limit", limit));
        self.request(&at(request, cursor)).await
    }

    /// How many events that have ended and are kept match a filter, of those that are examined
    /// after the cursor, which are as many as a page of [`Client::ended_events`] examines.
    pub async fn count_ended_events(
        &self,
        filter: &EndedFilter,
        cursor: Option<&str>,
    ) -> Result<EventCount, Error> {
        let request = Request::new(Method::GET, &format!("{ENDED}/count"));
        self.request(&at(filter.add_to(request), cursor)).await
    }
}
