//! Events of pulled handlers: leasing them, and checking their leases. Everything else about a
//! lease is the same as of a copy in a pulled queue.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use super::admin::milliseconds;
use super::pulls::{Fence, LeasedRow};
use crate::event::{
    Claim, EventId, EventOptions, HandlerScope, HeldLimit, LeaseToken, PullPolicy, Timestamp,
};
use crate::store::events::{ClaimedRow, claimed_rows};
use crate::store::kernel::{Store, StoreError, interval};
use crate::store::targets::kept_for;

/// A place among the events of a handler: the due time and the id of the first one behind it.
pub(crate) type DuePlace = (Timestamp, EventId);

/// What a look for events to lease has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeasableLook {
    /// Whether there seem to be some.
    pub(crate) has: bool,
    /// From where on a lease finds them, if it is not among the first events, or else where the
    /// next look goes on. `None`: at the first events.
    pub(crate) place: Option<DuePlace>,
}

/// What a lease of events has found.
#[derive(Debug, Default)]
pub(crate) struct LeasedEvents {
    pub(crate) rows: Vec<LeasedRow>,
    /// Limits with room for which others wait: an event that could not be leased has left it.
    pub(crate) room: Vec<HeldLimit>,
    /// Whether running events may have been cancelled to make room.
    pub(crate) cancels: bool,
}

impl Store {
    /// Leases up to `most` events of a pulled handler, in the order of their due times: with at
    /// most `bytes_max` bytes of values together, or one event. Looks at a bounded number of them:
    /// the first ones, and those from this place on if it finds nothing there. The leases have the
    /// name of the store's [worker](Store::claiming_as), if there is one.
    pub(crate) async fn lease_events(
        &self,
        scope: &HandlerScope,
        most: u32,
        held_for: Duration,
        bytes_max: i64,
        place: Option<DuePlace>,
    ) -> Result<LeasedEvents, StoreError> {
        let lease = self.timing().lease;
        let query = claimed_rows!(
            r#"null::uuid as origin, options, false as "is_limited!", false as "is_cancelled!", token"#,
            "wakeq.lease_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            scope.canvas.0,
            scope.module.as_str(),
            scope.name.as_str(),
            i32::try_from(most).unwrap_or(i32::MAX),
            interval(held_for),
            interval(lease),
            bytes_max,
            place.map(|(due, _)| due),
            place.map(|(_, id)| id.0),
            self.worker()
        );
        let rows = self.session().await?.all("lease events of a handler", query).await?;
        let (rows, limits): (Vec<ClaimedRow>, Vec<ClaimedRow>) =
            rows.into_iter().partition(|row| row.token.is_some());
        let (room, cancelled): (Vec<ClaimedRow>, Vec<ClaimedRow>) =
            limits.into_iter().partition(|row| row.module == "room");
        let room = room.iter().filter_map(|row| HeldLimit::parse(&row.name)).collect();
        let token =
            |row: &ClaimedRow| Some((EventId(row.id), row.token.as_ref()?.parse::<LeaseToken>().ok()?));
        let mut tokens: HashMap<_, _> = rows.iter().filter_map(token).collect();
        let (mut events, left) = ClaimedRow::into_events(rows, None);
        if let Err(error) = self.add_long_values(&mut events, &left).await {
            if events.is_empty() {
                return Err(error);
            }
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, handler = %scope, events = left.len(), "the values of events could not be read: they are leased again");
        }
        let leased = events.into_iter().filter_map(|event| {
            let token = tokens.remove(&event.claim.id)?;
            let until = event.locked_at + lease;
            Some(LeasedRow { event, token, since: until - held_for, until })
        });
        Ok(LeasedEvents { rows: leased.collect(), room, cancels: !cancelled.is_empty() })
    }

    /// Which of these handlers seem to have events that can be leased now: among the first ones, or
    /// where an earlier look goes on. A handler that is not pulled counts as well: leasing says so.
    pub(crate) async fn have_leasable(
        &self,
        handlers: &[(&HandlerScope, Option<DuePlace>)],
    ) -> Result<Vec<LeasableLook>, StoreError> {
        let canvases: Vec<_> = handlers.iter().map(|(scope, _)| scope.canvas.0).collect();
        let modules: Vec<_> = handlers.iter().map(|(scope, _)| scope.module.to_string()).collect();
        let names: Vec<_> = handlers.iter().map(|(scope, _)| scope.name.to_string()).collect();
        // Nothing is due before the first event.
        let first = (Timestamp::UNIX_EPOCH, EventId(Uuid::nil()));
        let places = handlers.iter().map(|(_, place)| place.unwrap_or(first));
        let (due, ids): (Vec<Timestamp>, Vec<Uuid>) = places.map(|(due, id)| (due, id.0)).unzip();
        let query = sqlx::query!(
            r#"select coalesce(l.has, true) as "has!", l.place, l.place_id
                 from unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::uuid[])
                      with ordinality as h (canvas_id, module, name, due, id, at)
                 left join lateral (
                      select f.has, f.place, f.place_id
                        from wakeq.has_leasable(h.canvas_id, h.module, h.name, $6, h.due, h.id) as f
                       where wakeq.is_pulled_handler(h.canvas_id, h.module, h.name) offset 0) as l on true
                order by h.at"#,
            &canvases,
            &modules,
            &names,
            &due,
            &ids,
            interval(self.timing().lease)
        );
        let rows = self.session().await?.all("check whether handlers have events to lease", query).await?;
        let looks = rows.into_iter().map(|row| LeasableLook {
            has: row.has,
            place: row.place.zip(row.place_id).map(|(due, id)| (due, EventId(id))),
        });
        Ok(looks.collect())
    }

    /// The retry policy of a handler's events, if it is pulled.
    pub(crate) async fn pulled_policy(&self, scope: &HandlerScope) -> Result<Option<PullPolicy>, StoreError> {
        let query = sqlx::query!(
            "select retries, delay_ms, factor, delay_max_ms, halts, keep_s::integer[] as keep_s from wakeq.pulled_handlers
              where canvas_id = $1 and module = $2 and name = $3",
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _
        );
        let row = self.session().await?.optional("read how a handler is pulled", query).await?;
        Ok(row.map(|row| PullPolicy {
            retries: row.retries.cast_unsigned(),
            delay: milliseconds(row.delay_ms),
            factor: row.factor.cast_unsigned(),
            delay_max: milliseconds(row.delay_max_ms),
            halts: row.halts,
            keep: kept_for(row.keep_s.as_deref()),
        }))
    }

    /// Checks a token against an event of this handler, by the database's clock.
    pub(crate) async fn fence_event(
        &self,
        scope: &HandlerScope,
        id: EventId,
        token: &LeaseToken,
    ) -> Result<Fence, StoreError> {
        let query = sqlx::query!(
            r#"select e.claims as "claims?", e.nonce as "nonce?", e.retries as "retries?", e.object::text as object,
                      wakeq.lease_token(p.lease_secret, $4, $5, $6) = $7 as "genuine!",
                      coalesce(e.locked_at >= clock_timestamp() - $8::interval, false) as "held!",
                      e.options::text as options, clock_timestamp() as "now!", e.leased_at as "leased_at?",
                      e.worker::text as worker, p.keep_s::integer[] as keep_s,
                      case when wakeq.is_limited(e.canvas_id, e.module, e.name, e.options)
                           then array(select l.counted_canvas || '/' || l.counted_name
                                        from wakeq.limits_of(e.canvas_id, e.module, e.name, e.options) l) end as places
                 from wakeq.pulled_handlers p
                 left join wakeq.events_v2 e
                   on e.id = $4 and e.canvas_id = p.canvas_id and e.module = p.module and e.name = p.name
                  and e.queue is null
                where p.canvas_id = $1 and p.module = $2 and p.name = $3"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            id.0,
            token.claims(),
            token.nonce(),
            token.reveal(),
            interval(self.timing().lease)
        );
        let Some(row) = self.session().await?.optional("look at an event's lease", query).await? else {
            return Ok(Fence::Unregistered);
        };
        let (Some(claims), Some(nonce)) = (row.claims, row.nonce) else { return Ok(Fence::Gone) };
        Ok(match (row.genuine, row.held && (claims, nonce) == (token.claims(), token.nonce())) {
            (false, _) => Fence::Wrong,
            (true, false) => Fence::Over,
            (true, true) => Fence::Stands {
                claim: Claim { id, claims, nonce },
                scope: scope.clone(),
                retries: row.retries.unwrap_or_default().unsigned_abs(),
                object: row.object.and_then(|object| object.parse().ok()),
                options: EventOptions::of(row.options.as_deref()),
                held: row.places.iter().flatten().filter_map(|held| HeldLimit::parse(held)).collect(),
                took: row.leased_at.map(|began| (row.now - began).to_std().unwrap_or_default()),
                keep: kept_for(row.keep_s.as_deref()),
                worker: row.worker.and_then(|name| name.parse().ok()),
                now: row.now,
            },
        })
    }
}
