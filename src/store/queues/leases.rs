//! Leases of pulled copies as operators see them: listed, and ended without their tokens.

use std::collections::HashSet;

use uuid::Uuid;

use crate::event::{Actor, CanvasId, EventId, HandlerAddress, Name, Place, Timestamp};
use crate::store::kernel::{Store, StoreError, address, interval};

/// Maximum number of canvases with copies in flight that one page visits.
const VISITED: i64 = 1000;

/// A copy that is currently leased over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The copy's own id.
    pub id: EventId,
    /// When the lease ends, by the database's clock.
    pub lease_until: Timestamp,
    /// The number of the attempt, from 1. Leases that ran out are not counted.
    pub attempt: u32,
    /// Canvas, module, name and modifier of the event.
    pub address: HandlerAddress,
    /// The event that it is a copy of.
    pub origin: EventId,
    /// Its object, and its link there.
    pub place: Option<Place>,
}

/// Where the next page of leases starts: after this copy of this canvas.
pub(crate) type LeasePosition = (CanvasId, EventId);

impl Store {
    /// The copies of a queue that are leased over HTTP, by canvas and id: at most `limit`, and
    /// where the next page starts.
    ///
    /// A pulled queue has a limit, so its facets list what it has in flight.
    pub(crate) async fn leases(
        &self,
        queue: &Name,
        after: Option<LeasePosition>,
        limit: usize,
    ) -> Result<(Vec<Lease>, Option<LeasePosition>), StoreError> {
        let (canvas, id) = after.unwrap_or((CanvasId(Uuid::nil()), EventId(Uuid::nil())));
        let query = sqlx::query!(
            r#"select f.canvas_id as "canvas_id!", e.id as "id?", e.module::text as module, e.name::text as name,
                      e.modifier::text as modifier, e.retries as "retries?", e.locked_at + $4::interval as until,
                      e.origin, e.object::text as object, e.seq, e.prev
                 from (select canvas_id, running from wakeq.facets
                        where queue = $1 and (running <> '{}' or was_full) and canvas_id >= $2
                        order by canvas_id limit $6) as f
                 left join lateral (
                      select x.* from wakeq.events_v2 x
                       where x.id = any (f.running) and x.queue = $1 and x.canvas_id = f.canvas_id and x.worker is null
                         and x.locked_at >= clock_timestamp() - $4::interval and (x.canvas_id, x.id) > ($2, $3)
                       order by x.id limit $5) as e on true
                order by f.canvas_id, e.id limit $5 + $6"#,
            queue.as_str() as _,
            canvas.0,
            id.0,
            interval(self.timing().lease),
            i64::try_from(limit).unwrap_or(i64::MAX - VISITED).saturating_add(1),
            VISITED
        );
        let rows = self.session().await?.all("list the leases of a queue", query).await?;
        let visited: HashSet<Uuid> = rows.iter().map(|row| row.canvas_id).collect();
        let is_last = i64::try_from(visited.len()).is_ok_and(|visited| visited < VISITED);
        let end = rows.last().filter(|_| !is_last).map(|row| (CanvasId(row.canvas_id), EventId(Uuid::max())));
        let leases = rows.into_iter().filter_map(|row| {
            let (module, name, modifier) = (row.module?, row.name?, row.modifier?);
            Some(Lease {
                id: EventId(row.id?),
                lease_until: row.until?,
                attempt: row.retries?.unsigned_abs() + 1,
                address: address(row.canvas_id, &module, &name, &modifier).ok()?,
                origin: EventId(row.origin?),
                place: Place::of(row.object.as_deref(), row.seq, row.prev),
            })
        });
        let mut leases: Vec<Lease> = leases.take(limit + 1).collect();
        if leases.len() <= limit {
            return Ok((leases, end));
        }
        leases.truncate(limit);
        let last = leases.last().map(|lease| (lease.address.scope.canvas, lease.id));
        Ok((leases, last))
    }

    /// Ends a lease as if its holder gave the copy back: nothing is counted. Returns the canvas of
    /// the copy; `None` if it is not leased in this queue.
    pub(crate) async fn end_lease(
        &self,
        queue: &Name,
        id: EventId,
        actor: &Actor,
    ) -> Result<Option<CanvasId>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with ended as (
                   update wakeq.events_v2 set locked_at = null
                    where id = $2 and queue = $1 and worker is null and locked_at >= clock_timestamp() - $6::interval
                returning id, canvas_id, module, name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
                   select canvas_id, $3, 'end-lease', module, name, id, 'done', $4, concat_ws('; ', $5::text, 'queue ' || $1::text)
                     from ended
               )
               select canvas_id from ended"#,
            queue.as_str() as _,
            id.0,
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            interval(self.timing().lease)
        );
        Ok(self.session().await?.optional("end a lease", query).await?.map(CanvasId))
    }
}
