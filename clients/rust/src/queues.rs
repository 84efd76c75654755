//! Registered queues, for keys of every canvas: a list, and how much there is to do in one.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::{Client, Error, Method, Page, Request};

const QUEUES: &str = "/v1/admin/queues";

/// A registered queue.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The patterns of the events that are copied into it.
    pub patterns: Vec<String>,
    /// Whether it gets no more copies, and is removed after the last waiting one.
    pub draining: bool,
    /// Events per canvas and round, for canvases without settings of their own; 0 pauses.
    pub weight: u32,
    /// How many events of a canvas run at once.
    pub in_flight_max: Option<u32>,
    /// Whether canvases see their copies, and hold them by their rules.
    #[serde(default)]
    pub tenant_visible: bool,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
    /// Its maker, such as `key:billing`.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
    /// Who changed it last.
    pub updated_by: String,
}

/// How much there is to do in a queue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct QueueDepth {
    /// Copies that are due and free to run, up to 10,000.
    pub depth: u64,
    /// Whether there may be more.
    pub capped: bool,
    /// Canvases that have turns now.
    pub canvases: u64,
}

impl Client {
    /// A page of the registered queues, by name. With a key of one canvas the code is `forbidden`.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// for queue in wakeq.queues(100, None).await?.items {
    ///     println!("{}: {} to do", queue.name, wakeq.queue_depth(&queue.name).await?.depth);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn queues(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Queue>, Error> {
        self.request(&Request::new(Method::GET, QUEUES).page(limit, cursor)).await
    }

    /// How many copies of a queue are due and free to run.
    pub async fn queue_depth(&self, name: &str) -> Result<QueueDepth, Error> {
        let request = Request::new(Method::GET, &format!("{QUEUES}/{{queue}}/depth"));
        self.request(&request.path("queue", name)).await
    }
}
