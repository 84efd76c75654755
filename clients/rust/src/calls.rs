//! One method per call.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Cancelled, Checkpoint, Client, DeadEvent, DeadFilter, Emitted, Error, EventDetail, Handler, Lifted,
    Method, NewEvent, Page, Pause, Redriven, Request, Rule, Statistics, StatisticsRange, Stopped,
};

const EVENTS: &str = "/v1/canvases/{canvas}/events";
const HANDLER: &str = "/v1/canvases/{canvas}/handlers/{module}/{name}";
const CANVAS_PAUSE: &str = "/v1/canvases/{canvas}/pause";
const DEAD: &str = "/v1/canvases/{canvas}/dead-events";

#[derive(Serialize)]
struct NewEvents<'a> {
    events: &'a [NewEvent],
}

#[derive(Deserialize)]
struct EmittedBatch {
    events: Vec<Emitted>,
}

#[derive(Deserialize)]
pub(crate) struct TheEvent {
    pub(crate) id: Uuid,
}

#[derive(Serialize)]
struct Left<'a, T: ?Sized> {
    claim: &'a str,
    value: &'a T,
}

/// The selection of a bulk request: a filter, or all.
#[derive(Serialize)]
struct Bulk<'a> {
    #[serde(flatten)]
    filter: &'a DeadFilter,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    all: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Client {
    /// Emits an event; returns once it is committed. Attempts after a lost answer emit nothing
    /// twice.
    pub async fn emit(&self, event: &NewEvent) -> Result<Emitted, Error> {
        self.emit_once(event, &fresh_key()).await
    }

    /// Emits an event under an idempotency key of 1 to 255 visible ASCII characters. Within 24
    /// hours, a repeat of the call with the same key emits nothing.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// let event = wakeq_client::NewEvent::new("invoice", &17)?;
    /// wakeq.emit_once(&event, "order-17").await?;
    /// wakeq.emit_once(&event, "order-17").await?; // adds nothing
    /// # Ok(())
    /// # }
    /// ```
    pub async fn emit_once(&self, event: &NewEvent, idempotency_key: &str) -> Result<Emitted, Error> {
        let request = Request::new(Method::POST, EVENTS).json(event)?;
        self.request(&request.idempotency_key(idempotency_key)).await
    }

    /// Emits up to 1,000 events, all or none; answers in their order.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::NewEvent;
    ///
    /// let emitted = wakeq.emit_all(&[NewEvent::new("greet", "Ada")?, NewEvent::new("greet", "Bob")?]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn emit_all(&self, events: &[NewEvent]) -> Result<Vec<Emitted>, Error> {
        let request = Request::new(Method::POST, &format!("{EVENTS}:batch")).json(&NewEvents { events })?;
        let answer: EmittedBatch = self.request(&request.idempotency_key(fresh_key())).await?;
        Ok(answer.events)
    }

    /// An event with its value. One that has ended is a problem with the code `not-found`, unless
    /// it is kept.
    pub async fn event(&self, id: Uuid) -> Result<EventDetail, Error> {
        self.request(&of_event(Method::GET, "", id).query("view", "full")).await
    }

    /// Why an event is not running, and what happens next; without its value.
    pub async fn explain(&self, id: Uuid) -> Result<EventDetail, Error> {
        self.request(&of_event(Method::GET, "", id)).await
    }

    /// Deletes an event that is not running, and returns its id; for a running one the code is
    /// `not-waiting`.
    pub async fn cancel(&self, id: Uuid) -> Result<Uuid, Error> {
        Ok(self.request::<TheEvent>(&of_event(Method::POST, "/cancel", id)).await?.id)
    }

    /// Cancels an event also if it is running: its handler is told to stop, and cut off after a
    /// grace.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client, id: uuid::Uuid) -> Result<(), wakeq_client::Error> {
    /// match wakeq.cancel_running(id).await?.next {
    ///     Some(next) => println!("{next}"),
    ///     None => println!("it was deleted"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel_running(&self, id: Uuid) -> Result<Cancelled, Error> {
        self.request(&of_event(Method::POST, "/cancel", id).query("running", "true")).await
    }

    /// What the attempts of an event have left to the next one. Without anything the problem has
    /// the code `not-found`.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client, id: uuid::Uuid) -> Result<(), wakeq_client::Error> {
    /// let left = wakeq.checkpoint(id).await?.value;
    /// println!("continues after {}", left.as_deref().map_or("nothing", |json| json.get()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn checkpoint(&self, id: Uuid) -> Result<Checkpoint, Error> {
        self.request(&of_event(Method::GET, "/checkpoint", id)).await
    }

    /// Leaves a value of at most 64 KiB of JSON to the next attempt of an event. `claim` is the
    /// header `wakeq-claim` of a delivery, or the `lease`. If it does not stand any more
    /// the code is `lease-over`, and the attempt has to stop.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client, id: uuid::Uuid, claim: &str) -> Result<(), wakeq_client::Error> {
    /// wakeq.store_checkpoint(id, claim, &serde_json::json!({"page": 7})).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn store_checkpoint<T: Serialize + ?Sized>(
        &self,
        id: Uuid,
        claim: &str,
        value: &T,
    ) -> Result<(), Error> {
        let request = of_event(Method::PUT, "/checkpoint", id).json(&Left { claim, value })?;
        self.send(&request.repeatable()).await.map(drop)
    }

    /// All handlers of the canvas that have events, rules or targets: one request for each
    /// thousand.
    pub async fn handlers(&self) -> Result<Vec<Handler>, Error> {
        let list = || Request::new(Method::GET, "/v1/canvases/{canvas}/handlers").query("limit", "1000");
        let mut page: Page<Handler> = self.request(&list()).await?;
        let mut all = page.items;
        while let Some(cursor) = page.next_cursor {
            page = self.request(&list().query("cursor", &cursor)).await?;
            all.extend(page.items);
        }
        Ok(all)
    }

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
        let request = of_handler(Method::PUT, module, name).json(pause)?;
        self.request(&request.repeatable()).await
    }

    /// Lifts the pause, and wakes what waited.
    pub async fn unpause(&self, module: &str, name: &str) -> Result<Lifted, Error> {
        self.request(&of_handler(Method::DELETE, module, name)).await
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
        let request = Request::new(Method::PUT, CANVAS_PAUSE).json(pause)?;
        self.request(&request.repeatable()).await
    }

    /// Lifts the pause of the whole canvas, and wakes what waited; handlers that are paused
    /// themselves stay so.
    pub async fn unpause_canvas(&self) -> Result<Lifted, Error> {
        self.request(&Request::new(Method::DELETE, CANVAS_PAUSE)).await
    }

    /// What stops the whole canvas: its pause and its block, and the block of everything.
    pub async fn switches(&self) -> Result<Vec<Rule>, Error> {
        let list = Request::new(Method::GET, "/v1/canvases/{canvas}/switches").query("limit", "1000");
        Ok(self.request::<Page<Rule>>(&list).await?.items)
    }

    /// What happened to the events of a handler, in columns for a chart.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// let last_day = wakeq_client::StatisticsRange::default();
    /// let chart = wakeq.handler_statistics("WORKER", "send-email", &last_day).await?;
    /// println!("{} emails", chart.completed.iter().sum::<u64>());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handler_statistics(
        &self,
        module: &str,
        name: &str,
        range: &StatisticsRange,
    ) -> Result<Statistics, Error> {
        let request = Request::new(Method::GET, &format!("{HANDLER}/statistics"));
        self.request(&of_range(request.path("module", module).path("name", name), range)).await
    }

    /// The same for all handlers of the canvas together.
    pub async fn statistics(&self, range: &StatisticsRange) -> Result<Statistics, Error> {
        let request = Request::new(Method::GET, "/v1/canvases/{canvas}/statistics");
        self.request(&of_range(request, range)).await
    }

    /// A page of dead events, the latest first: pass its `next_cursor`, with the same filter, for
    /// the next one.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::DeadFilter;
    ///
    /// let filter = DeadFilter { name: Some("send-email".into()), ..DeadFilter::default() };
    /// let page = wakeq.dead_events(&filter, 100, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dead_events(
        &self,
        filter: &DeadFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<DeadEvent>, Error> {
        let request = Request::new(Method::GET, DEAD).query("limit", limit);
        let times = [("since", filter.since), ("before", filter.before)];
        let times = times.into_iter().filter_map(|(name, time)| Some((name, time?.to_rfc3339())));
        let texts =
            [("module", filter.module.as_deref()), ("name", filter.name.as_deref()), ("cursor", cursor)];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?.to_owned())));
        let request = times.chain(texts).fold(request, |request, (name, value)| request.query(name, value));
        self.request(&request).await
    }

    /// Emits dead events again, up to 10,000: those of a filter, which is not empty. On `more`,
    /// repeat it with the answer's `before`.
    pub async fn redrive(&self, filter: &DeadFilter) -> Result<Redriven, Error> {
        self.bulk(&Bulk { filter, all: false, dry_run: false }).await
    }

    /// The number of events that [`Client::redrive`] would emit, up to 10,000.
    pub async fn count_redrive(&self, filter: &DeadFilter) -> Result<u64, Error> {
        Ok(self.bulk(&Bulk { filter, all: false, dry_run: true }).await?.redriven)
    }

    /// Emits all dead events of the canvas again, up to 10,000. On `more`, go on with
    /// [`Client::redrive`] and the answer's `before`.
    pub async fn redrive_all(&self) -> Result<Redriven, Error> {
        self.bulk(&Bulk { filter: &DeadFilter::default(), all: true, dry_run: false }).await
    }

    async fn bulk(&self, bulk: &Bulk<'_>) -> Result<Redriven, Error> {
        self.request(&Request::new(Method::POST, &format!("{DEAD}/redrive")).json(bulk)?).await
    }

    /// Emits one dead event again, and returns its id.
    pub async fn redrive_one(&self, id: Uuid) -> Result<Uuid, Error> {
        let request = Request::new(Method::POST, &format!("{DEAD}/{{id}}/redrive")).path("id", id);
        Ok(self.request::<TheEvent>(&request).await?.id)
    }
}

fn of_event(method: Method, action: &str, id: Uuid) -> Request {
    Request::new(method, &format!("{EVENTS}/{{id}}{action}")).path("id", id)
}

fn of_handler(method: Method, module: &str, name: &str) -> Request {
    Request::new(method, &format!("{HANDLER}/pause")).path("module", module).path("name", name)
}

fn of_range(request: Request, range: &StatisticsRange) -> Request {
    let times = [("from", range.from), ("to", range.to)];
    let times = times.into_iter().filter_map(|(name, time)| Some((name, time?.to_rfc3339())));
    let step = range.step_s.map(|step_s| ("step_s", step_s.to_string()));
    times.chain(step).fold(request, |request, (name, value)| request.query(name, value))
}

pub(crate) fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}
