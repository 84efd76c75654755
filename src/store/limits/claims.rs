//! The claim of events that have limits, which only `wakeq.claim_limited` makes.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::event::{CanvasId, HeldLimit, Notification, Timestamp};
use crate::store::events::{ClaimLimits, ClaimedEvent, ClaimedRow};
use crate::store::kernel::{Sql, StoreError, interval};

/// What became of a claim through limits.
#[derive(Clone, Debug)]
pub(crate) enum LimitedClaim {
    /// It was made, and the event has a place of each limit that it needs one of.
    Claimed(Box<ClaimedEvent>),
    /// The event waits for a place of this limit, and is woken when it may have one.
    Full(String),
    /// Its rates let the event start after this long.
    Later(Duration),
    /// It could not be made for another reason, as [`Store::claim`](crate::store::Store::claim)
    /// could not.
    Not,
}

/// What became of claims through limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitedClaims {
    /// In the order of the notifications.
    pub(crate) claims: Vec<LimitedClaim>,
    /// Limits with room for which others wait.
    pub(crate) room: Vec<HeldLimit>,
    /// Whether running events may have been cancelled to make room.
    pub(crate) cancels: bool,
}

/// What the statement found for an event, or that a limit has room. All but the first columns are
/// of a claim that was made.
struct LimitedRow {
    id: Option<Uuid>,
    canvas_id: Option<Uuid>,
    verdict: String,
    limit_canvas: Option<Uuid>,
    limit_name: Option<String>,
    wait_us: Option<i64>,
    cancels: Option<bool>,
    held: Option<Vec<String>>,
    module: Option<String>,
    name: Option<String>,
    modifier: Option<String>,
    value: Option<String>,
    retries: Option<i32>,
    delay_until: Option<Timestamp>,
    enqueued_at: Option<Timestamp>,
    locked_at: Option<Timestamp>,
    claims: Option<i32>,
    nonce: Option<i32>,
    losses: Option<i32>,
    postponed_since: Option<Timestamp>,
    took_over: Option<bool>,
    traceparent: Option<String>,
    options: Option<String>,
    object: Option<String>,
    seq: Option<i64>,
    prev: Option<i64>,
    is_cancelled: Option<bool>,
}

impl Sql<'_> {
    pub(in crate::store) async fn claim_limited(
        &self,
        notifications: &[Notification],
        limits: &ClaimLimits,
    ) -> Result<LimitedClaims, StoreError> {
        let mut asked: Vec<(Uuid, Uuid)> =
            notifications.iter().map(|notification| (notification.id.0, notification.canvas.0)).collect();
        asked.sort_unstable();
        asked.dedup();
        let (keys, canvases): (Vec<Uuid>, Vec<Uuid>) = asked.into_iter().unzip();
        let rows = self.limited_rows((&keys, &canvases), limits).await?;
        let mut found = HashMap::<(Uuid, Uuid), LimitedClaim>::new();
        let cancels = rows.iter().any(|row| row.cancels == Some(true));
        let (mut claimed, mut held, mut room) = (Vec::new(), HashMap::new(), Vec::new());
        for row in rows {
            let key = row.id.zip(row.canvas_id);
            match (row.verdict.as_str(), key) {
                ("claimed", Some((id, _))) => {
                    held.insert(id, row.held());
                    claimed.extend(row.into_claimed());
                }
                (_, Some(key)) => drop(found.insert(key, row.without_claim())),
                ("room", None) => room.extend(row.limit()),
                (_, None) => {}
            }
        }
        let (mut events, left) = ClaimedRow::into_events(claimed, None);
        if let Err(error) = self.add_long_values(&mut events, &left).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                events = left.len(),
                "claimed events were released: their values can't be read"
            );
        }
        for mut event in events {
            event.held = held.remove(&event.claim.id.0);
            let key = (event.claim.id.0, event.address.scope.canvas.0);
            found.insert(key, LimitedClaim::Claimed(Box::new(event)));
        }
        // Of two notifications of one event in a batch, only the first has claimed it.
        let answer = |notification: &Notification| {
            let key = (notification.id.0, notification.canvas.0);
            match found.remove(&key) {
                Some(claimed @ LimitedClaim::Claimed(_)) => claimed,
                Some(other) => {
                    found.insert(key, other.clone());
                    other
                }
                None => LimitedClaim::Not,
            }
        };
        Ok(LimitedClaims { claims: notifications.iter().map(answer).collect(), room, cancels })
    }

    async fn limited_rows(
        &self,
        (keys, canvases): (&[Uuid], &[Uuid]),
        limits: &ClaimLimits,
    ) -> Result<Vec<LimitedRow>, StoreError> {
        let query = sqlx::query_as!(
            LimitedRow,
            r#"select id, canvas_id, verdict as "verdict!", limit_canvas, limit_name, wait_us, held,
                      case when verdict = 'full' then (wakeq.limit_on(limit_canvas, limit_name)).on_full = 'cancel' end as cancels,
                      module, name, modifier,
                      case when octet_length(value) <= 4096 - coalesce(octet_length(options), 0) then value end as value,
                      retries, delay_until, enqueued_at, locked_at, claims, nonce, losses, postponed_since, took_over,
                      traceparent, options, object, seq, prev, is_cancelled
                 from wakeq.claim_limited($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"#,
            keys,
            canvases,
            limits.handlers.names(),
            &limits.canvas_handlers,
            interval(self.timing().lease),
            limits.losses_below,
            limits.value_max,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            self.worker()
        );
        self.session().await?.all("claim events through their limits", query).await
    }
}

impl LimitedRow {
    /// The limits whose places it has now.
    fn held(&self) -> Box<[HeldLimit]> {
        self.held.iter().flatten().filter_map(|held| HeldLimit::parse(held)).collect()
    }

    /// The limit that it is about.
    fn limit(self) -> Option<HeldLimit> {
        Some(HeldLimit { canvas: CanvasId(self.limit_canvas?), name: self.limit_name? })
    }

    fn without_claim(self) -> LimitedClaim {
        match (self.verdict.as_str(), self.limit_name) {
            ("full", Some(name)) => LimitedClaim::Full(name),
            ("later", _) => {
                let wait_us = self.wait_us.unwrap_or_default().max(0);
                LimitedClaim::Later(Duration::from_micros(wait_us.cast_unsigned()))
            }
            _ => LimitedClaim::Not,
        }
    }

    /// The row as that of an ordinary claim.
    fn into_claimed(self) -> Option<ClaimedRow> {
        Some(ClaimedRow {
            id: self.id?,
            canvas_id: self.canvas_id?,
            module: self.module?,
            name: self.name?,
            modifier: self.modifier?,
            value: self.value,
            retries: self.retries?,
            delay_until: self.delay_until?,
            enqueued_at: self.enqueued_at?,
            locked_at: self.locked_at?,
            claims: self.claims?,
            nonce: self.nonce?,
            losses: self.losses?,
            postponed_since: self.postponed_since,
            took_over: self.took_over?,
            traceparent: self.traceparent,
            options: self.options,
            object: self.object,
            seq: self.seq,
            prev: self.prev,
            origin: None,
            is_limited: false,
            is_cancelled: self.is_cancelled?,
            token: None,
        })
    }
}
