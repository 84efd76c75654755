//! What became of the events of crons' last ticks. A tick notes the id of its event and no
//! completion writes anything for a cron, so events are looked up by their ids when somebody asks.

use uuid::Uuid;

use crate::event::{CanvasId, EndedOutcome, EventId, RuleKind, Schedule, Timestamp, Turn};
use crate::store::kernel::{Store, StoreError};

/// The event of a last tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastEvent {
    pub(crate) id: EventId,
    pub(crate) place: LastEventPlace,
    /// Retries so far; 0 of an event that is nowhere.
    pub(crate) retries: i32,
}

/// Where an event is, or that it is nowhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LastEventPlace {
    /// Among the events. `waits`: for a place of a limit.
    Live { schedule: Schedule, waits: bool },
    /// Among the dead events.
    Dead,
    /// Among the events that are kept.
    Ended(EndedOutcome),
    /// It was deleted.
    Gone,
}

struct LastEventRow {
    id: Uuid,
    delay_until: Option<Timestamp>,
    locked_at: Option<Timestamp>,
    rule: Option<String>,
    waits: bool,
    is_dead: bool,
    outcome: Option<String>,
    retries: i32,
    now: Timestamp,
}

impl LastEventRow {
    fn into_event(self) -> LastEvent {
        let rule = self.rule.as_deref().and_then(|kind| kind.parse::<RuleKind>().ok());
        let outcome = self.outcome.as_deref().and_then(EndedOutcome::parse);
        let (locked_at, now, waits) = (self.locked_at, self.now, self.waits);
        let place = match (self.delay_until, self.is_dead, outcome) {
            // An event of a cron is on no object, and no copy.
            (Some(delay_until), ..) => LastEventPlace::Live {
                schedule: Schedule { delay_until, locked_at, rule, turn: Turn::First, now },
                waits,
            },
            (None, true, _) => LastEventPlace::Dead,
            (None, false, Some(outcome)) => LastEventPlace::Ended(outcome),
            (None, false, None) => LastEventPlace::Gone,
        };
        LastEvent { id: EventId(self.id), place, retries: self.retries }
    }
}

impl Store {
    /// What became of these events of crons of a canvas, in one snapshot. Each is looked up by its
    /// id among those that are left, then the dead and then the ended ones. Of one that is left,
    /// the rules on its handler and what it waits for are looked up as well.
    pub(crate) async fn last_events(
        &self,
        canvas: CanvasId,
        ids: &[Uuid],
    ) -> Result<Vec<LastEvent>, StoreError> {
        let query = sqlx::query_as!(
            LastEventRow,
            r#"select asked.id as "id!", e.delay_until as "delay_until?", e.locked_at as "locked_at?", rule.kind as "rule?",
                      limited.waits as "waits!", d.id is not null as "is_dead!", k.outcome as "outcome?",
                      coalesce(e.retries, d.retries, k.retries, 0) as "retries!", now() as "now!"
                 from unnest($2::uuid[]) as asked (id)
                 left join lateral (
                      select x.* from wakeq.events_v2 x where x.id = asked.id and x.canvas_id = $1 offset 0) as e on true
                 left join lateral (
                      select x.id, x.retries from wakeq.dead_events x
                       where e.id is null and x.id = asked.id and x.canvas_id = $1 offset 0) as d on true
                 left join lateral (
                      select x.outcome, x.retries from wakeq.ended_events x
                       where e.id is null and d.id is null and x.id = asked.id and x.canvas_id = $1 and x.kept_until > now()
                       order by x.kept_until desc limit 1) as k on true
                cross join lateral (
                      select greatest(max(r.rule_type), (select wakeq.switch_on($1, null, now())))::text as kind
                        from wakeq.scheduling_rules r
                       where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
                         and (r.until is null or r.until > now())) as rule
                cross join lateral (
                      select e.starts_at is not null and (
                          select w.woken_at is null from wakeq.limit_waits w where w.event_id = e.id) is true as waits) as limited"#,
            canvas.0,
            ids
        );
        let rows = self.session().await?.all("look at the last events of crons", query).await?;
        Ok(rows.into_iter().map(LastEventRow::into_event).collect())
    }
}
