//! What stops handlers, canvases or everything: pauses by users, and blocks by admins.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{Client, Error, Method, Page, Request};

const CANVAS: &str = "/canvases/{canvas}";
const HANDLER: &str = "/canvases/{canvas}/handlers/{module}/{name}";

/// A pause by a user, or a block by an admin.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Rule {
    /// `pause` or `block`.
    pub kind: String,
    /// What it stops: `handler`, `canvas` or `everything`.
    pub stops: String,
    /// The reason.
    pub reason: Option<String>,
    /// When it ends by itself.
    pub until: Option<DateTime<Utc>>,
    /// Its maker, such as `key:billing`.
    pub created_by: String,
    /// Since when it has been in force.
    pub created_at: DateTime<Utc>,
}

/// Why a handler or a canvas is stopped, and for how long.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::Pause;
///
/// let pause = Pause::default().reason("mail server down").lasting(Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pause {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_s: Option<f64>,
}

impl Pause {
    /// Sets the reason, which others see.
    pub fn reason(self, reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..self }
    }

    /// Sets when it ends by itself, within a minute. Default: never.
    pub fn until(self, moment: DateTime<Utc>) -> Self {
        Self { until: Some(moment), for_s: None, ..self }
    }

    /// Sets after how long it ends by itself, on the database's clock.
    pub fn lasting(self, length: Duration) -> Self {
        Self { for_s: Some(length.as_secs_f64()), until: None, ..self }
    }
}

/// The result of a pause or a block.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Stopped {
    /// Whether it was not in force before.
    pub new: bool,
    /// The pause or the block.
    pub rule: Rule,
    /// The kind of the other one, if it stops the same: `pause` or `block`.
    #[serde(default)]
    pub also: Option<String>,
}

/// The result of lifting a pause or a block.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Lifted {
    /// Whether one was in force.
    pub lifted: bool,
    /// The kind of the other one, if it still stops the same: `pause` or `block`.
    #[serde(default)]
    pub still: Option<String>,
    /// A rule that stops more and holds the events all the same.
    #[serde(default)]
    pub under: Option<Rule>,
}

impl Client {
    /// Pauses a handler on this canvas: when it returns, no worker claims an event of it anymore.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::Pause;
    ///
    /// wakeq.pause("WORKER", "send-email", &Pause::default().reason("mail server down")).await?;
    /// wakeq.unpause("WORKER", "send-email").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pause(&self, module: &str, name: &str, pause: &Pause) -> Result<Stopped, Error> {
        self.stop(of_handler(Method::PUT, "/v1", "pause", module, name), pause).await
    }

    /// Lifts the pause, and wakes what waited.
    pub async fn unpause(&self, module: &str, name: &str) -> Result<Lifted, Error> {
        self.request(&of_handler(Method::DELETE, "/v1", "pause", module, name)).await
    }

    /// Pauses the whole canvas: when it returns, no worker claims an event of it anymore. Emits are
    /// accepted, and their events wait.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::Pause;
    ///
    /// wakeq.pause_canvas(&Pause::default().reason("wrong prices")).await?;
    /// wakeq.unpause_canvas().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pause_canvas(&self, pause: &Pause) -> Result<Stopped, Error> {
        self.stop(Request::new(Method::PUT, &format!("/v1{CANVAS}/pause")), pause).await
    }

    /// Lifts the pause of the whole canvas, and wakes what waited; handlers that are paused
    /// themselves stay so.
    pub async fn unpause_canvas(&self) -> Result<Lifted, Error> {
        self.request(&Request::new(Method::DELETE, &format!("/v1{CANVAS}/pause"))).await
    }

    /// Blocks a handler on this canvas: when it returns, no worker claims an event of it anymore,
    /// and [`Client::unpause`] does not lift it. The key needs the scope `admin`.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::Pause;
    ///
    /// wakeq.block("WORKER", "send-email", &Pause::default().reason("it writes to strangers")).await?;
    /// wakeq.unblock("WORKER", "send-email").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn block(&self, module: &str, name: &str, pause: &Pause) -> Result<Stopped, Error> {
        self.stop(of_handler(Method::PUT, "/v1/admin", "block", module, name), pause).await
    }

    /// Lifts the block of a handler, and wakes what waited.
    pub async fn unblock(&self, module: &str, name: &str) -> Result<Lifted, Error> {
        self.request(&of_handler(Method::DELETE, "/v1/admin", "block", module, name)).await
    }

    /// Blocks the whole canvas, for keys with the scope `admin`.
    pub async fn block_canvas(&self, pause: &Pause) -> Result<Stopped, Error> {
        self.stop(Request::new(Method::PUT, &format!("/v1/admin{CANVAS}/block")), pause).await
    }

    /// Lifts the block of the whole canvas, and wakes what waited; handlers that are stopped
    /// themselves stay so.
    pub async fn unblock_canvas(&self) -> Result<Lifted, Error> {
        self.request(&Request::new(Method::DELETE, &format!("/v1/admin{CANVAS}/block"))).await
    }

    /// Blocks every canvas and every queue, for keys with the scope `admin` on every canvas.
    pub async fn block_all(&self, pause: &Pause) -> Result<Stopped, Error> {
        self.stop(Request::new(Method::PUT, "/v1/admin/block"), pause).await
    }

    /// Lifts the block of everything, and wakes what waited on any canvas.
    pub async fn unblock_all(&self) -> Result<Lifted, Error> {
        self.request(&Request::new(Method::DELETE, "/v1/admin/block")).await
    }

    /// What stops the whole canvas: its pause and its block, and the block of everything.
    pub async fn switches(&self) -> Result<Vec<Rule>, Error> {
        let list = Request::new(Method::GET, "/v1/canvases/{canvas}/switches").query("limit", "1000");
        Ok(self.request::<Page<Rule>>(&list).await?.items)
    }

    async fn stop(&self, request: Request, pause: &Pause) -> Result<Stopped, Error> {
        self.request(&request.json(pause)?.repeatable()).await
    }
}

fn of_handler(method: Method, root: &str, kind: &str, module: &str, name: &str) -> Request {
    let request = Request::new(method, &format!("{root}{HANDLER}/{kind}"));
    request.path("module", module).path("name", name)
}
