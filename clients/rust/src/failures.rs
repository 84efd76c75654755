//! What failed: error groups of dead events, and objects that a dead event halts.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::search::at;
use crate::{Client, Error, Method, Page, Request};

const GROUPS: &str = "/v1/canvases/{canvas}/dead-events/groups";

/// Dead events of a handler that died of the same error.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ErrorGroup {
    /// Its id, which is the `error_group` of dead events and of filters.
    pub id: Uuid,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// Why the events died, as [`DeadEvent::cause`](crate::DeadEvent::cause).
    pub cause: String,
    /// The first line of their last errors, with `#` for what varies.
    pub fingerprint: String,
    /// How many of the dead events that were grouped are of it.
    pub count: u64,
    /// When the first of these died.
    pub first_died_at: DateTime<Utc>,
    /// When the last of these died.
    pub last_died_at: DateTime<Utc>,
    /// The one that died last.
    pub example_id: Uuid,
    /// Its last error, up to 1,000 characters.
    pub error: Option<String>,
    /// What is known of the group, if it is marked as known.
    pub known: Option<KnownError>,
}

/// The mark of an error group that is known.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct KnownError {
    /// What is known: a ticket, the cause, or what to do.
    pub note: Option<String>,
    /// Who marked it.
    pub by: String,
    /// When it was marked.
    pub at: DateTime<Utc>,
}

/// A page of error groups.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ErrorGroups {
    /// The groups of this page.
    pub items: Vec<ErrorGroup>,
    /// The cursor of the next page; `None` on the last one.
    pub next_cursor: Option<String>,
    /// How many dead events were grouped: at most 100,000, those that died last.
    pub looked_at: u64,
    /// Whether there may be older dead events, which were not grouped.
    pub more: bool,
}

/// Selects error groups: those that match all fields that are set, and by default all of the
/// canvas.
///
/// ```
/// use wakeq_client::ErrorGroupFilter;
///
/// let news = ErrorGroupFilter { known: Some(false), latest_first: true, ..ErrorGroupFilter::default() };
/// ```
#[derive(Clone, Debug, Default)]
pub struct ErrorGroupFilter {
    /// The handler's module; requires `name`. Default `WORKER`.
    pub module: Option<String>,
    /// The handler's name.
    pub name: Option<String>,
    /// Only groups that are marked as known, or only those that are not.
    pub known: Option<bool>,
    /// Whether those of which an event died last come first, and not those with the most events.
    pub latest_first: bool,
}

/// An object that is halted for a handler by a dead event.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct HaltedObject {
    /// The object.
    pub object: String,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The dead event: redrive or skip it.
    pub event: Uuid,
    /// Since when the object is halted.
    pub halted_at: DateTime<Utc>,
}

#[derive(Serialize)]
struct KnowError<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

#[derive(Serialize)]
struct OfHandler<'a> {
    module: &'a str,
    name: &'a str,
}

#[derive(Deserialize)]
struct Skipped {
    skipped: bool,
}

impl ErrorGroupFilter {
    fn add_to(&self, request: Request) -> Request {
        let texts = [
            ("module", self.module.clone()),
            ("name", self.name.clone()),
            ("known", self.known.map(|known| known.to_string())),
            ("order", self.latest_first.then(|| "last_died".to_owned())),
        ];
        let given = texts.into_iter().filter_map(|(name, text)| Some((name, text?)));
        given.fold(request, |request, (name, text)| request.query(name, text))
    }
}

impl Client {
    /// A page of error groups: pass its `next_cursor`, with the same filter, for the next one.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::ErrorGroupFilter;
    ///
    /// for group in wakeq.error_groups(&ErrorGroupFilter::default(), 10, None).await?.items {
    ///     println!("{} of {}: {}", group.count, group.name, group.fingerprint);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn error_groups(
        &self,
        filter: &ErrorGroupFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<ErrorGroups, Error> {
        let request = filter.add_to(Request::new(Method::GET, GROUPS).query("limit", limit));
        self.request(&at(request, cursor)).await
    }

    /// An error group.
    pub async fn error_group(&self, id: Uuid) -> Result<ErrorGroup, Error> {
        self.request(&of_group(Method::GET, id, "")).await
    }

    /// Marks an error group as known. Repeated, it replaces the mark.
    pub async fn know_error(&self, id: Uuid, note: Option<&str>) -> Result<KnownError, Error> {
        let request = of_group(Method::PUT, id, "/known").json(&KnowError { note })?;
        self.request(&request.repeatable()).await
    }

    /// Removes the mark of an error group.
    pub async fn forget_error(&self, id: Uuid) -> Result<(), Error> {
        self.send(&of_group(Method::DELETE, id, "/known")).await.map(drop)
    }

    /// A page of the objects that are halted by a dead event, the longest halted first.
    pub async fn halted_objects(
        &self,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<HaltedObject>, Error> {
        let list = Request::new(Method::GET, "/v1/canvases/{canvas}/halted-objects");
        self.request(&list.page(limit, cursor)).await
    }

    /// Resumes an object for a handler without its dead event, and returns whether it was halted.
    pub async fn skip_object(&self, object: &str, module: &str, name: &str) -> Result<bool, Error> {
        let request = Request::new(Method::POST, "/v1/canvases/{canvas}/objects/{object}/skip");
        let request = request.path("object", object).json(&OfHandler { module, name })?;
        Ok(self.request::<Skipped>(&request).await?.skipped)
    }
}

fn of_group(method: Method, id: Uuid, action: &str) -> Request {
    Request::new(method, &format!("{GROUPS}/{{error_group}}{action}")).path("error_group", id)
}
