//! Events by a filter: lists and counts, and the tags of an event.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::calls::TheEvent;
use crate::{Client, DeadEvent, Error, EventState, Method, Page, Request};

const EVENTS: &str = "/v1/canvases/{canvas}/events";
const DEAD: &str = "/v1/canvases/{canvas}/dead-events";

/// Selects events, which are those that match all fields that are set.
///
/// ```
/// use wakeq_client::EventFilter;
///
/// let filter = EventFilter {
///     name: Some("send-email".into()),
///     tags: vec!["customer:7".into()],
///     value: Some(r#"$.kind = "invoice""#.into()),
///     ..EventFilter::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// The handler's module. Default `WORKER` if `name` is set.
    pub module: Option<String>,
    /// The handler's name.
    pub name: Option<String>,
    /// The handler's modifier.
    pub modifier: Option<String>,
    /// In one of these states, in the API's words; not for lists of dead events.
    pub states: Vec<String>,
    /// With all of these tags.
    pub tags: Vec<String>,
    /// On this object.
    pub object: Option<String>,
    /// Members of this batch.
    pub batch: Option<String>,
    /// Waiting for this limit, by the name under which it counts, such as `customer:7`; not for
    /// lists of dead events.
    pub waits_for: Option<String>,
    /// Emitted at or after this time.
    pub emitted_since: Option<DateTime<Utc>>,
    /// Emitted before this time.
    pub emitted_before: Option<DateTime<Utc>>,
    /// Due at or after this time; not for dead events.
    pub due_since: Option<DateTime<Utc>>,
    /// Due before this time; not for dead events.
    pub due_before: Option<DateTime<Utc>>,
    /// Died at or after this time; only for dead events.
    pub died_since: Option<DateTime<Utc>>,
    /// Died before this time; only for dead events.
    pub died_before: Option<DateTime<Utc>>,
    /// Of this error group; only for dead events.
    pub error_group: Option<Uuid>,
    /// Whose last error contains this text.
    pub error_text: Option<String>,
    /// Whose value contains this text, as it was emitted.
    pub value_text: Option<String>,
    /// Whose value has a scalar at a path: `$.customer.id = "7"`.
    pub value: Option<String>,
}

/// An event in a list.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct EventSummary {
    /// Its id.
    pub id: Uuid,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The handler's modifier.
    pub modifier: String,
    /// What it waits for.
    pub state: EventState,
    /// When it was emitted.
    pub enqueued_at: DateTime<Utc>,
    /// When it is due.
    pub delay_until: DateTime<Utc>,
    /// Retries so far: failed attempts that another one follows.
    pub retries: i32,
    /// Claims that were lost because a worker died or stalled.
    pub losses: i32,
    /// Its tags.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// How many events match a filter, of those that were examined.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct EventCount {
    /// How many of the examined events match.
    pub count: u64,
    /// How many events were examined.
    pub looked_at: u64,
    /// Where the next request goes on; `None` if all were examined.
    pub next_cursor: Option<String>,
}

#[derive(Serialize)]
struct SetDue {
    delay_until: DateTime<Utc>,
}

#[derive(Serialize)]
struct SetTags<'a> {
    tags: &'a [&'a str],
}

/// Which times a request takes, beside those of the emit.
enum Times {
    Due,
    Died(&'static str, &'static str),
    Both,
}

impl EventFilter {
    fn add_to(&self, request: Request, times: &Times) -> Request {
        let joined = |all: &[String]| (!all.is_empty()).then(|| all.join(","));
        let mut moments =
            vec![("emitted_since", self.emitted_since), ("emitted_before", self.emitted_before)];
        if matches!(times, Times::Due | Times::Both) {
            moments.extend([("due_since", self.due_since), ("due_before", self.due_before)]);
        }
        match times {
            Times::Due => {}
            Times::Died(since, before) => {
                moments.extend([(*since, self.died_since), (*before, self.died_before)]);
            }
            Times::Both => {
                moments.extend([("died_since", self.died_since), ("died_before", self.died_before)])
            }
        }
        let moments =
            moments.into_iter().map(|(name, moment)| (name, moment.map(|moment| moment.to_rfc3339())));
        let texts = [
            ("module", self.module.clone()),
            ("name", self.name.clone()),
            ("modifier", self.modifier.clone()),
            ("state", joined(&self.states)),
            ("tag", joined(&self.tags)),
            ("object", self.object.clone()),
            ("batch", self.batch.clone()),
            ("waits_for", self.waits_for.clone()),
            ("error_group", self.error_group.map(|group| group.to_string())),
            ("error_text", self.error_text.clone()),
            ("value_text", self.value_text.clone()),
            ("value", self.value.clone()),
        ];
        let given = moments.chain(texts).filter_map(|(name, text)| Some((name, text?)));
        given.fold(request, |request, (name, text)| request.query(name, text))
    }
}

impl Client {
    /// A page of events that have not ended, by handler and due time: pass its `next_cursor`, with
    /// the same filter, for the next one. A page may be short or empty although more follow.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::EventFilter;
    ///
    /// let filter = EventFilter { tags: vec!["customer:7".into()], ..EventFilter::default() };
    /// let page = wakeq.events(&filter, 100, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn events(
        &self,
        filter: &EventFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<EventSummary>, Error> {
        let request = filter.add_to(Request::new(Method::GET, EVENTS).query("limit", limit), &Times::Due);
        self.request(&at(request, cursor)).await
    }

    /// A page of dead events, the latest first, as [`Client::events`].
    pub async fn search_dead_events(
        &self,
        filter: &EventFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<DeadEvent>, Error> {
        let times = Times::Died("since", "before");
        let request = filter.add_to(Request::new(Method::GET, DEAD).query("limit", limit), &times);
        self.request(&at(request, cursor)).await
    }

    /// How many events match a filter, of up to 10,000 that are examined after the cursor. With the
    /// state `dead` alone, dead events are counted.
    pub async fn count_events(
        &self,
        filter: &EventFilter,
        cursor: Option<&str>,
    ) -> Result<EventCount, Error> {
        let request = Request::new(Method::GET, &format!("{EVENTS}/count"));
        self.request(&at(filter.add_to(request, &Times::Both), cursor)).await
    }

    /// Gives an event that waits another due time, earlier or later, and returns its id.
    pub async fn set_due(&self, id: Uuid, at: DateTime<Utc>) -> Result<Uuid, Error> {
        let request = Request::new(Method::PUT, &format!("{EVENTS}/{{id}}/due")).path("id", id);
        Ok(self.request::<TheEvent>(&request.json(&SetDue { delay_until: at })?).await?.id)
    }

    /// Replaces the tags of an event, and returns its id.
    pub async fn set_tags(&self, id: Uuid, tags: &[&str]) -> Result<Uuid, Error> {
        let request = Request::new(Method::PUT, &format!("{EVENTS}/{{id}}/tags")).path("id", id);
        Ok(self.request::<TheEvent>(&request.json(&SetTags { tags })?).await?.id)
    }
}

/// A request for the page at a cursor.
pub(crate) fn at(request: Request, cursor: Option<&str>) -> Request {
    match cursor {
        Some(cursor) => request.query("cursor", cursor),
        None => request,
    }
}
