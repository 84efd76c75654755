//! Copies of queues that services pull: leasing, extending, and checking leases.
//!
//! A lease is a claim like a worker's, with a length of its own: its `locked_at` is written such
//! that it stands until then.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::admin::milliseconds;
use crate::event::{
    CANCEL_GRACE, CanvasId, Claim, EventId, EventOptions, HandlerScope, HeldLimit, Keep, LeaseToken, Name,
    Notification, ObjectKey, PullPolicy, Timestamp,
};
use crate::store::events::{ClaimedEvent, ClaimedRow, claimed_rows};
use crate::store::kernel::{Sql, Store, StoreError, address, interval};

/// Maximum number of canvases with copies that one call visits, from the first one and from the
/// given one.
const LOOK: i32 = 1000;

/// A leased copy.
#[derive(Debug)]
pub(crate) struct LeasedRow {
    pub(crate) event: ClaimedEvent,
    pub(crate) token: LeaseToken,
    /// When the lease began and when it ends, by the database's clock.
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

/// The result of checking a token against a copy, or an event of a pulled handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every answer is that which stands")]
pub(crate) enum Fence {
    /// No queue has this name, or the handler is not pulled.
    Unregistered,
    /// It has no such copy or event.
    Gone,
    /// The token was not made for any claim of it.
    Wrong,
    /// The lease has run out, or was given up.
    Over,
    /// The lease stands.
    Stands {
        claim: Claim,
        /// The handler that its event names.
        scope: HandlerScope,
        /// Retries before this attempt.
        retries: u32,
        /// The object in whose lane it is first, if it is on one.
        object: Option<ObjectKey>,
        /// What its emit asked for, unless it is a copy.
        options: Option<Box<EventOptions>>,
        /// The limits whose places it has.
        held: Vec<HeldLimit>,
        /// For how long it has been leased; `None` for a copy, whose attempts are not noted.
        took: Option<Duration>,
        /// For how long it is kept if its emit asks for nothing else.
        keep: Keep,
        /// The name of the program that leased it, if it has said one; none for a copy.
        worker: Option<Name>,
        /// When this was looked up, by the database's clock.
        now: Timestamp,
    },
}

impl Store {
    /// Leases up to `most` copies of a pulled queue, as its rotation gives them now: with at most
    /// `bytes_max` bytes of values together, or one copy.
    pub(crate) async fn lease_copies(
        &self,
        queue: &Name,
        most: u32,
        held_for: Duration,
        bytes_max: i64,
    ) -> Result<Vec<LeasedRow>, StoreError> {
        let lease = self.timing().lease;
        let query = claimed_rows!(
            r#"origin, null::text as options, is_limited as "is_limited!", false as "is_cancelled!", token"#,
            "wakeq.pull_turns($1, $2, $3, $4, $5, $6)",
            queue.as_str(),
            i32::try_from(most).unwrap_or(i32::MAX),
            interval(held_for),
            interval(lease),
            interval(self.timing().grace),
            bytes_max
        );
        let rows = self.session().await?.all("lease copies of a queue", query).await?;
        let token =
            |row: &ClaimedRow| Some((EventId(row.id), row.token.as_ref()?.parse::<LeaseToken>().ok()?));
        let mut tokens: HashMap<_, _> = rows.iter().filter_map(token).collect();
        let (mut events, left) = ClaimedRow::into_events(rows, Some(queue));
        if let Some(error) = self.add_values(queue, &mut events, &left).await {
            if events.is_empty() {
                return Err(error);
            }
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %queue, copies = left.len(), "the values of copies could not be read: they are leased again");
        }
        let leased = events.into_iter().filter_map(|event| {
            let token = tokens.remove(&event.claim.id)?;
            let until = event.locked_at + lease;
            Some(LeasedRow { event, token, since: until - held_for, until })
        });
        Ok(leased.collect())
    }

    /// Puts canvases whose copies became due, were given back or were lost into the rotation of a
    /// pulled queue: among the first ones with copies, and among those after the given one. Returns
    /// whether there are any.
    pub(crate) async fn enter_due(&self, queue: &Name, after: Uuid) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select wakeq.enter_due($1, $2, $3, $4) as "entered!""#,
            queue.as_str(),
            interval(self.timing().lease),
            after,
            LOOK
        );
        self.session().await?.one("look for what became due in a queue", query).await
    }

    /// Whether a pulled queue may have something to take now: in its rotation or, if this `looks`,
    /// where [`Store::enter_due`] would find it. `None` if no pulled queue has this name.
    pub(crate) async fn has_turns(
        &self,
        queue: &Name,
        after: Uuid,
        looks: bool,
    ) -> Result<Option<bool>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select exists (select from wakeq.facets f where f.queue = q.name and f.position is not null offset 0)
                   or $5 and exists (select from wakeq.due_facets(q.name, $2, $3, $4)) as "has!"
                 from wakeq.queues q where q.name = $1 and q.pulled"#,
            queue.as_str() as _,
            interval(self.timing().lease),
            after,
            LOOK,
            looks
        );
        self.session().await?.optional("check whether a queue has turns", query).await
    }

    /// The retry policy of a queue's copies, if it is pulled; `None` if no queue has this name.
    pub(crate) async fn pull_policy(&self, queue: &Name) -> Result<Option<Option<PullPolicy>>, StoreError> {
        let query = sqlx::query!(
            "select pulled, pull_retries, pull_delay_ms, pull_factor, pull_delay_max_ms, pull_halts
               from wakeq.queues where name = $1",
            queue.as_str() as _
        );
        let row = self.session().await?.optional("read how a queue is pulled", query).await?;
        let policy = row.map(|row| {
            row.pulled.then(|| PullPolicy {
                retries: row.pull_retries.cast_unsigned(),
                delay: milliseconds(row.pull_delay_ms),
                factor: row.pull_factor.cast_unsigned(),
                delay_max: milliseconds(row.pull_delay_max_ms),
                halts: row.pull_halts,
                keep: Keep::default(),
            })
        });
        Ok(policy)
    }

    /// Checks a token against a copy of this queue, by the database's clock.
    pub(crate) async fn fence(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
    ) -> Result<Fence, StoreError> {
        let query = sqlx::query!(
            r#"select e.canvas_id as "canvas_id?", e.claims as "claims?", e.nonce as "nonce?", e.retries as "retries?",
                      e.module::text as "module?", e.name::text as "name?", e.object::text as object,
                      wakeq.lease_token(q.lease_secret, $2, $3, $6) = $4 as "genuine!",
                      coalesce(e.locked_at >= clock_timestamp() - $5::interval, false) as "held!",
                      clock_timestamp() as "now!"
                 from wakeq.queues q
                 left join wakeq.events_v2 e on e.id = $2 and e.queue = q.name
                where q.name = $1"#,
            queue.as_str() as _,
            id.0,
            token.claims(),
            token.reveal(),
            interval(self.timing().lease),
            token.nonce()
        );
        let Some(row) = self.session().await?.optional("look at a lease", query).await? else {
            return Ok(Fence::Unregistered);
        };
        let (Some(canvas), Some(claims), Some(nonce)) = (row.canvas_id, row.claims, row.nonce) else {
            return Ok(Fence::Gone);
        };
        let (module, name) = (row.module.as_deref().unwrap_or(""), row.name.as_deref().unwrap_or(""));
        let Ok(address) = address(canvas, module, name, "_") else { return Ok(Fence::Gone) };
        Ok(match (row.genuine, row.held && (claims, nonce) == (token.claims(), token.nonce())) {
            (false, _) => Fence::Wrong,
            (true, false) => Fence::Over,
            (true, true) => Fence::Stands {
                claim: Claim { id, claims, nonce },
                scope: address.scope,
                retries: row.retries.unwrap_or_default().unsigned_abs(),
                object: row.object.and_then(|object| object.parse().ok()),
                options: None,
                held: Vec::new(),
                took: None,
                keep: Keep::default(),
                worker: None,
                now: row.now,
            },
        })
    }

    /// Extends a lease that stands to this long from now; returns when it ends, by the database's
    /// clock, and whether somebody has cancelled the event.
    ///
    /// The first extension after that leaves the program its grace, or what the lease had left if
    /// that is less, whatever it asks for. No later one moves the end.
    pub(crate) async fn extend_lease(
        &self,
        (canvas, claim): (CanvasId, Claim),
        held_for: Duration,
    ) -> Result<Option<(Timestamp, bool)>, StoreError> {
        let query = sqlx::query!(
            r#"update wakeq.events_v2
                  set locked_at = case when cancelled_by is null then clock_timestamp() + ($4::interval - $5::interval)
                                       else least(locked_at, clock_timestamp() + ($6::interval - $5)) end
                where id = $1 and canvas_id = $2 and claims::bigint << 32 | nonce = $3 and locked_at >= clock_timestamp() - $5::interval
            returning locked_at + $5::interval as "until!", cancelled_by is not null as "is_cancelled!""#,
            claim.id.0,
            canvas.0,
            claim.fence(),
            interval(held_for),
            interval(self.timing().lease),
            interval(CANCEL_GRACE)
        );
        let extended = self.session().await?.optional("extend a lease", query).await?;
        Ok(extended.map(|row| (row.until, row.is_cancelled)))
    }

    /// Puts copies of a pulled queue into its rotation, so that they get their turns. Where the
    /// queue's lock is not had in time, they are promised again.
    pub(crate) async fn announce_pulled(&self, copies: &PulledCopies) -> Result<(), StoreError> {
        let Err(error) = self.announce_to(&copies.queue, &copies.ids).await else { return Ok(()) };
        let ids: Vec<EventId> = copies.ids.iter().copied().map(EventId).collect();
        tracing::info!(
            error = &error as &dyn std::error::Error,
            queue = %copies.queue,
            copies = ids.len(),
            "copies were not announced to their queue: they are promised again"
        );
        Sql(self).promise_again(&ids).await
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn split_pulled(
        &self,
        notifications: &[Notification],
    ) -> Result<PulledSplit, StoreError> {
        let ids: Vec<Uuid> = notifications.iter().map(|notification| notification.id.0).collect();
        let query = sqlx::query!(
            r#"select looked.queue, looked.is_pulled as "is_pulled!", array_agg(looked.id) as "ids!"
                 from (select e.id, e.queue::text as queue, (e.options @> '{"urgent": true}') is true as is_urgent,
                              (e.queue is not null and wakeq.is_pulled(e.queue)
                               or e.queue is null and (select exists (select from wakeq.pulled_handlers))
                                  and wakeq.is_pulled_handler(e.canvas_id, e.module, e.name)) is true as is_pulled
                         from wakeq.events_v2 e where e.id = any ($1) offset 0) as looked
                where looked.is_pulled or looked.is_urgent
                group by looked.queue, looked.is_pulled"#,
            &ids
        );
        let rows = self.session().await?.all("look for copies that are pulled", query).await?;
        let ids_of = |is_pulled: bool| {
            let of_them = rows.iter().filter(move |row| row.is_pulled == is_pulled);
            of_them.flat_map(|row| row.ids.iter().copied()).collect::<HashSet<Uuid>>()
        };
        let (pulled, urgent) = (ids_of(true), ids_of(false));
        let others = notifications.iter().filter(|notification| !pulled.contains(&notification.id.0));
        let workers = others.map(|told| told.urgent_if(urgent.contains(&told.id.0))).collect();
        // Events of pulled handlers are announced to nobody: a lease finds them by their index.
        let copies = rows.into_iter().filter(|row| row.is_pulled);
        let copies = copies.filter_map(|row| Some(PulledCopies { queue: row.queue?, ids: row.ids }));
        Ok(PulledSplit { workers, pulled: copies.collect() })
    }
}

/// Events, divided by how they get to a handler.
#[derive(Debug, Default)]
pub(crate) struct PulledSplit {
    /// Those that workers are notified of, each urgent if its row says so.
    pub(crate) workers: Vec<Notification>,
    /// Those that services pull.
    pub(crate) pulled: Vec<PulledCopies>,
}

/// Copies in one pulled queue.
#[derive(Debug)]
pub(crate) struct PulledCopies {
    queue: String,
    ids: Vec<Uuid>,
}
