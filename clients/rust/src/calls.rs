//! Calls about one event, and about dead events.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Cancelled, Checkpoint, Client, DeadEvent, DeadFilter, Deleted, Emitted, Error, EventDetail, Method,
    NewEvent, Page, Redriven, Request,
};

const EVENTS: &str = "/v1/canvases/{canvas}/events";
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

    /// Makes an event that waits due at once, and returns its id; for a running one the code is
    /// `not-waiting`. A pause or a block still holds it.
    pub async fn run_now(&self, id: Uuid) -> Result<Uuid, Error> {
        Ok(self.request::<TheEvent>(&of_event(Method::POST, "/run-now", id)).await?.id)
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
        self.bulk("redrive", &Bulk { filter, all: false, dry_run: false }).await
    }

    /// The number of events that [`Client::redrive`] would emit, up to 10,000.
    pub async fn count_redrive(&self, filter: &DeadFilter) -> Result<u64, Error> {
        let redriven: Redriven = self.bulk("redrive", &Bulk { filter, all: false, dry_run: true }).await?;
        Ok(redriven.redriven)
    }

    /// Emits all dead events of the canvas again, up to 10,000. On `more`, go on with
    /// [`Client::redrive`] and the answer's `before`.
    pub async fn redrive_all(&self) -> Result<Redriven, Error> {
        self.bulk("redrive", &Bulk { filter: &DeadFilter::default(), all: true, dry_run: false }).await
    }

    /// Emits one dead event again, and returns its id.
    pub async fn redrive_one(&self, id: Uuid) -> Result<Uuid, Error> {
        let request = Request::new(Method::POST, &format!("{DEAD}/{{id}}/redrive")).path("id", id);
        Ok(self.request::<TheEvent>(&request).await?.id)
    }

    /// Deletes dead events, up to 10,000: those of a filter, which is not empty. On `more`, repeat
    /// it with the answer's `before`.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::DeadFilter;
    ///
    /// let mut emails = DeadFilter { name: Some("send-email".into()), ..DeadFilter::default() };
    /// loop {
    ///     let deleted = wakeq.delete_dead(&emails).await?;
    ///     if !deleted.more {
    ///         break;
    ///     }
    ///     emails.before = deleted.before;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_dead(&self, filter: &DeadFilter) -> Result<Deleted, Error> {
        self.bulk("delete", &Bulk { filter, all: false, dry_run: false }).await
    }

    /// The number of events that [`Client::delete_dead`] would delete, up to 10,000.
    pub async fn count_delete_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        let deleted: Deleted = self.bulk("delete", &Bulk { filter, all: false, dry_run: true }).await?;
        Ok(deleted.deleted)
    }

    async fn bulk<T: DeserializeOwned>(&self, verb: &str, bulk: &Bulk<'_>) -> Result<T, Error> {
        self.request(&Request::new(Method::POST, &format!("{DEAD}/{verb}")).json(bulk)?).await
    }
}

fn of_event(method: Method, action: &str, id: Uuid) -> Request {
    Request::new(method, &format!("{EVENTS}/{{id}}{action}")).path("id", id)
}

pub(crate) fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}
