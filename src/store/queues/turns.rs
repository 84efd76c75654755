//! Turns: taking the copies of a queue in the rotation of its facets.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::event::{CanvasId, Claim, EventId, Name, Notification};
use crate::store::events::{ClaimedEvent, ClaimedRow, claimed_rows};
use crate::store::kernel::{Store, StoreError, interval};

/// Maximum number of copies that are announced together.
const ANNOUNCED: usize = 500;
/// Maximum number of facets that one search for room visits.
const LIMITED: i64 = 500;
/// Maximum number of copies of a facet that are woken after several of its runs have ended
/// together.
const ROOM_MAX: i64 = 100;

/// A notification that asks for a turn of its event's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnRequest {
    pub(crate) queue: Name,
    pub(crate) asks: EventId,
}

/// The outcome of a turn.
pub(crate) type TurnOutcome = Result<Option<ClaimedEvent>, StoreError>;

impl Store {
    /// Takes a turn for each asker: the event that it claims, which need not be the one that asks;
    /// `None` if the rotation has no more. Only events with fewer losses than `losses_below` and
    /// values of at most `value_max` bytes.
    ///
    /// Each queue is answered separately: claims in one are not lost when another can't be reached.
    pub(crate) async fn take_turns(
        &self,
        turns: &[TurnRequest],
        losses_below: i32,
        value_max: i32,
    ) -> Vec<TurnOutcome> {
        let mut asked: HashMap<&Name, Vec<EventId>> = HashMap::new();
        for turn in turns {
            asked.entry(&turn.queue).or_default().push(turn.asks);
        }
        let mut taken: HashMap<&Name, ClaimedTurns> = HashMap::new();
        for (queue, asks) in asked {
            let mut of_queue = self.take(queue, &asks, false, (losses_below, value_max)).await;
            of_queue.events.reverse();
            taken.insert(queue, of_queue);
        }
        let mut next = |queue: &Name| taken.get_mut(queue).map_or(Ok(None), ClaimedTurns::next);
        turns.iter().map(|turn| next(&turn.queue)).collect()
    }

    /// Claims this copy regardless of the rotation, if its canvas may have one more in flight.
    pub(crate) async fn take_alone(
        &self,
        queue: &Name,
        id: EventId,
        losses_below: i32,
        value_max: i32,
    ) -> Result<Option<ClaimedEvent>, StoreError> {
        self.take(queue, &[id], true, (losses_below, value_max)).await.next()
    }

    async fn take(&self, queue: &Name, asked: &[EventId], alone: bool, bounds: (i32, i32)) -> ClaimedTurns {
        let rows = match self.take_rows(queue, asked, alone, bounds).await {
            Ok(rows) => rows,
            Err(error) => return ClaimedTurns { events: Vec::new(), trouble: Some(error) },
        };
        let (mut events, left) = ClaimedRow::into_events(rows, Some(queue));
        let trouble = self.add_values(queue, &mut events, &left).await;
        ClaimedTurns { events, trouble }
    }

    /// Fills in the values that the answer to a turn left out; returns the error if that failed.
    pub(super) async fn add_values(
        &self,
        queue: &Name,
        events: &mut Vec<ClaimedEvent>,
        left: &[Claim],
    ) -> Option<StoreError> {
        let trouble = self.add_long_values(events, left).await.err()?;
        // They were released, so their facets have to enter the rotation again.
        let ids: Vec<Uuid> = left.iter().map(|claim| claim.id.0).collect();
        self.announce_to(queue.as_str(), &ids).await.err().or(Some(trouble))
    }

    async fn take_rows(
        &self,
        queue: &Name,
        asked: &[EventId],
        alone: bool,
        (losses_below, value_max): (i32, i32),
    ) -> Result<Vec<ClaimedRow>, StoreError> {
        let ids: Vec<Uuid> = asked.iter().map(|id| id.0).collect();
        let query = claimed_rows!(
            r#"origin, null::text as options, is_limited as "is_limited!", is_cancelled as "is_cancelled!",
               null::text as token"#,
            "wakeq.take_turns($1, $2, $3, $4, $5, $6, $7, $8, by_worker => $9)",
            queue.as_str(),
            &ids,
            i32::try_from(ids.len()).unwrap_or(i32::MAX),
            alone,
            interval(self.timing().lease),
            losses_below,
            value_max,
            interval(self.timing().grace),
            self.worker() as _
        );
        self.session().await?.all("take turns of a queue", query).await
    }

    /// Puts the facets of copies that were just committed into the rotation: one queue after the
    /// other, and few enough at a time that nothing waits for long.
    pub(crate) async fn announce(&self, copies: &[EventId]) -> Result<(), StoreError> {
        // A queue whose lock is held must not keep the others from being announced.
        let mut trouble = Ok(());
        for page in copies.chunks(ANNOUNCED) {
            for (queue, ids) in self.queues_of(page).await? {
                trouble = trouble.and(self.announce_to(&queue, &ids).await);
            }
        }
        trouble
    }

    pub(super) async fn announce_to(&self, queue: &str, ids: &[Uuid]) -> Result<(), StoreError> {
        let query = sqlx::query!(r#"select true as "done!" from wakeq.announce($1, $2)"#, queue, ids);
        self.session().await?.all("announce copies", query).await.map(drop)
    }

    /// Recalls those of these copies that their facets have passed over: from then on, a run that
    /// ends there finds them.
    pub(crate) async fn recall_held(&self, copies: &[EventId]) -> Result<(), StoreError> {
        // As in `announce`.
        let mut trouble = Ok(());
        for (queue, ids) in self.queues_of(copies).await? {
            trouble = trouble.and(self.recall_held_in(&queue, &ids).await);
        }
        trouble
    }

    async fn recall_held_in(&self, queue: &str, ids: &[Uuid]) -> Result<(), StoreError> {
        let query = sqlx::query!(r#"select true as "done!" from wakeq.recall_held($1, $2)"#, queue, ids);
        self.session().await?.all("recall copies", query).await.map(drop)
    }

    async fn queues_of(&self, copies: &[EventId]) -> Result<Vec<(String, Vec<Uuid>)>, StoreError> {
        let ids: Vec<Uuid> = copies.iter().map(|id| id.0).collect();
        let query = sqlx::query!(
            r#"select queue::text as "queue!", array_agg(id) as "ids!" from wakeq.events_v2
                where id = any ($1) and queue is not null group by queue"#,
            &ids
        );
        let queues = self.session().await?.all("look for the queues of copies", query).await?;
        Ok(queues.into_iter().map(|row| (row.queue, row.ids)).collect())
    }

    /// For each of these ended runs, by queue and canvas: copies of its facet that may run now and
    /// whose notifications may all be gone, because the facet was at its limit. Each facet is
    /// searched once, for up to eight copies per ended run; all of them are returned with the first
    /// of its runs.
    pub(crate) async fn room_in_facets_of(
        &self,
        ended: &[(Name, CanvasId)],
    ) -> Result<Vec<Vec<Notification>>, StoreError> {
        let queues: Vec<String> = ended.iter().map(|(queue, _)| queue.to_string()).collect();
        let canvases: Vec<Uuid> = ended.iter().map(|(_, canvas)| canvas.0).collect();
        let query = sqlx::query!(
            r#"select f.number as "number!", room.id as "id!"
                 from (select queue, canvas_id, min(number) as number, count(*) as runs
                         from unnest($1::text[], $2::uuid[]) with ordinality as asked (queue, canvas_id, number)
                        group by queue, canvas_id) as asked
                cross join lateral (
                      select asked.* where wakeq.facet_was_full(asked.queue, asked.canvas_id) offset 0) as f
                cross join lateral wakeq.room_in_facet(
                      f.queue, f.canvas_id, $3, most => least(8 * f.runs, $4)::integer) as room (id)"#,
            &queues,
            &canvases,
            interval(self.timing().lease),
            ROOM_MAX
        );
        let mut rooms = vec![Vec::new(); ended.len()];
        for row in self.session().await?.all("look for room in facets of runs", query).await? {
            // Numbers start at 1.
            let at = usize::try_from(row.number - 1).unwrap_or(usize::MAX);
            if let (Some(room), Some((_, canvas))) = (rooms.get_mut(at), ended.get(at)) {
                room.push(Notification::new(EventId(row.id), *canvas));
            }
        }
        Ok(rooms)
    }

    /// As [`Store::room_in_facets_of`], for all facets with a limit, whether or not they were full,
    /// and with a longer search: for the minute's pass, in case a process died that made room.
    /// Visits a page of facets after a given one; returns the last of them, if there may be more.
    pub(crate) async fn room_in_facets(
        &self,
        after: Option<&(String, CanvasId)>,
    ) -> Result<(Vec<Notification>, Option<(String, CanvasId)>), StoreError> {
        let query = sqlx::query!(
            r#"select f.queue::text as "queue!", f.canvas_id, room.id as "id?"
                 from (select queue, canvas_id from wakeq.facets
                        where (running <> '{}' or was_full) and ($3::text is null or (queue, canvas_id) > ($3, $4::uuid))
                        order by queue, canvas_id limit $2) as f
                 left join lateral wakeq.room_in_facet(f.queue, f.canvas_id, $1, true) as room (id) on true
                order by f.queue, f.canvas_id"#,
            interval(self.timing().lease),
            LIMITED,
            after.map(|(queue, _)| queue),
            after.map(|(_, canvas)| canvas.0)
        );
        let rows = self.session().await?.all("look for room in facets", query).await?;
        let facets: HashSet<_> = rows.iter().map(|row| (&row.queue, row.canvas_id)).collect();
        let last = rows.last().filter(|_| i64::try_from(facets.len()).is_ok_and(|count| count >= LIMITED));
        let last = last.map(|row| (row.queue.clone(), CanvasId(row.canvas_id)));
        let rooms = rows
            .into_iter()
            .filter_map(|row| Some(Notification::new(EventId(row.id?), CanvasId(row.canvas_id))));
        Ok((rooms.collect(), last))
    }
}

/// The copies that the turns of one queue have claimed.
struct ClaimedTurns {
    /// In the order of the rotation.
    events: Vec<ClaimedEvent>,
    /// Why the other askers get nothing, unless there were no more copies.
    trouble: Option<StoreError>,
}

impl ClaimedTurns {
    /// Takes the last of the events.
    fn next(&mut self) -> TurnOutcome {
        match (self.events.pop(), &self.trouble) {
            (None, Some(trouble)) => Err(trouble.clone()),
            (event, _) => Ok(event),
        }
    }
}
