//! Waking events that wait for a place of a limit.

use std::collections::HashMap;

use uuid::Uuid;

use crate::event::{CanvasId, EventId, HandlerAddress, HeldLimit, Notification};
use crate::store::kernel::{Sql, StoreError, address, interval};

/// Maximum number of limits of which the minute's pass learns at once that they have room. The
/// statement that then wakes what waits for them locks all of them, and their claims wait for it.
const ROOM_PAGE: i32 = 100;
/// Maximum number of limits at which one statement wakes events.
const LIMITS_MAX: usize = 1000;

/// An event that was woken at a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WokenEvent {
    pub(crate) notification: Notification,
    /// Its handler; `None` if it is gone meanwhile.
    pub(crate) address: Option<HandlerAddress>,
}

/// Limits with room for which others wait: a page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitsWithRoom {
    pub(crate) limits: Vec<HeldLimit>,
    /// The last limit that was looked at, if there may be more behind it.
    pub(crate) next: Option<HeldLimit>,
}

impl Sql<'_> {
    pub(in crate::store) async fn wake_waiting(
        &self,
        limits: &[HeldLimit],
        ended: &[EventId],
    ) -> Result<Vec<WokenEvent>, StoreError> {
        let mut named: Vec<&HeldLimit> = limits.iter().collect();
        named.sort_unstable();
        named.dedup();
        let mut woken = Vec::new();
        for page in named.chunks(LIMITS_MAX) {
            woken.extend(self.wake_at(page, ended).await?);
        }
        Ok(woken)
    }

    async fn wake_at(&self, named: &[&HeldLimit], ended: &[EventId]) -> Result<Vec<WokenEvent>, StoreError> {
        let canvases: Vec<Uuid> = named.iter().map(|limit| limit.canvas.0).collect();
        let names: Vec<String> = named.iter().map(|limit| limit.name.clone()).collect();
        let ended: Vec<Uuid> = ended.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            r#"select w.id as "id!", w.canvas_id as "canvas_id!", e.module::text as "module?", e.name::text as "name?",
                      e.modifier::text as "modifier?", (e.options @> '{"urgent": true}') is true as "is_urgent!"
                 from wakeq.wake_waiting($1, $2, $3, $4, $5) w
                 left join lateral (
                      select o.module, o.name, o.modifier, o.options
                        from wakeq.events_v2 o where o.id = w.id offset 0) as e on true"#,
            &canvases,
            &names,
            interval(self.timing().lease),
            interval(self.timing().grace),
            &ended
        );
        let rows = self.session().await?.all("wake what waits at limits", query).await?;
        let told = rows.into_iter().map(|row| {
            let notification = Notification::new(EventId(row.id), CanvasId(row.canvas_id));
            let address =
                row.module.zip(row.name).zip(row.modifier).and_then(|((module, name), modifier)| {
                    address(row.canvas_id, &module, &name, &modifier).ok()
                });
            WokenEvent { notification: notification.urgent_if(row.is_urgent), address }
        });
        Ok(told.collect())
    }

    /// Events that have paid for a start keep it.
    pub(in crate::store) async fn step_aside(
        &self,
        ids: &[EventId],
    ) -> Result<Vec<Option<HeldLimit>>, StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            r#"with woken as (
                   select event_id from wakeq.limit_waits
                    where event_id = any ((select $1::uuid[])::uuid[]) and not is_paid
                      and coalesce(woken_at <= clock_timestamp(), false) for update skip locked
               )
               delete from wakeq.limit_waits w where w.event_id = any (array(select event_id from woken))
            returning w.event_id, w.canvas_id, w.name"#,
            &keys
        );
        let rows = self.session().await?.all("give up places at limits", query).await?;
        let mut left: HashMap<Uuid, HeldLimit> = rows
            .into_iter()
            .map(|row| (row.event_id, HeldLimit { canvas: CanvasId(row.canvas_id), name: row.name }))
            .collect();
        Ok(keys.iter().map(|key| left.remove(key)).collect())
    }

    pub(in crate::store) async fn limits_with_room(
        &self,
        only: Option<CanvasId>,
        after: Option<&HeldLimit>,
    ) -> Result<LimitsWithRoom, StoreError> {
        let query = sqlx::query!(
            r#"select canvas_id as "canvas_id!", name as "name!", has_room as "has_room!"
                 from wakeq.limits_with_room($1, $2, $3, $4, $5)"#,
            interval(self.timing().lease),
            ROOM_PAGE,
            after.map(|limit| limit.canvas.0).or(only.map(|canvas| canvas.0)),
            after.map(|limit| limit.name.as_str()),
            only.map(|canvas| canvas.0)
        );
        let rows = self.session().await?.all("look for limits with room", query).await?;
        let mut found = LimitsWithRoom::default();
        for row in rows {
            let limit = HeldLimit { canvas: CanvasId(row.canvas_id), name: row.name };
            if row.has_room {
                found.limits.push(limit);
            } else {
                found.next = Some(limit);
            }
        }
        Ok(found)
    }
}
