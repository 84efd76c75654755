//! Ticks of crons: emitting them, and moving the crons' fences, in one transaction. The caller
//! decides which ticks are due; this file ensures that none is emitted twice, by the lock on the
//! cron's row, by its `next_at`, and by the ticks that are noted as emitted ahead.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::{CanvasId, Due, EventId, HandlerAddress, Name, NewEvent, Notification, Timestamp};
use crate::store::events::{InsertOutcome, add_all};
use crate::store::kernel::{Emission, Store, StoreError, address, interval};

/// Maximum number of crons in one transaction.
const CRONS: i64 = 100;
/// How many of the crons that are due first are read to give each canvas its turn: usually more
/// than one canvas has.
const LOOKED_AT: i64 = 2000;
/// Maximum number of events in one transaction, and of one canvas in it. The rest waits for another
/// transaction.
const EVENTS: usize = 1000;
const CANVAS_EVENTS: usize = 250;
/// About how many bytes of values one transaction emits.
const BYTES: usize = 8 * 1024 * 1024;
/// Statements of a transaction: begin, look, up to ten pages of events, move, commit.
const STATEMENTS: usize = 14;

/// A cron with a tick to be emitted.
#[derive(Clone, Debug)]
pub(crate) struct CronDue {
    pub(crate) canvas: CanvasId,
    pub(crate) name: Name,
    pub(crate) expression: String,
    pub(crate) zone: String,
    pub(crate) missed: String,
    /// The first tick that was not emitted.
    pub(crate) next_at: Timestamp,
}

/// The decision on a due cron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CronStep {
    /// Emit these ticks; the second field is the first tick that is not emitted, if there is one.
    Emit(Vec<Timestamp>, Option<Timestamp>),
    /// This release can't read its schedule: leave it as it is.
    Leave,
}

/// The outcome of a transaction of ticks.
#[derive(Clone, Debug, Default)]
pub(crate) struct TickOutcome {
    /// Notifications to publish, of the events that are due soon and their copies.
    pub(crate) notifications: Vec<Notification>,
    /// Copies in queues of the events that are due soon.
    pub(crate) copies: Vec<EventId>,
    /// The events that were emitted.
    pub(crate) events: Vec<NewEvent>,
    /// Crons that were left as they are.
    pub(crate) left: Vec<(CanvasId, Name)>,
    /// Whether there may be more.
    pub(crate) more: bool,
}

/// A cron whose step was taken.
struct CronMove {
    canvas: Uuid,
    name: String,
    seen: Timestamp,
    next: Option<Timestamp>,
    /// The last of its ticks that has come, and its event.
    last: Option<(Timestamp, Uuid)>,
    ticks: i64,
}

/// The writes of one transaction.
#[derive(Default)]
struct TickWrites {
    moved: Vec<CronMove>,
    events: Vec<NewEvent>,
    /// Those events that are emitted ahead, each with its tick and the position of its cron.
    ahead: Vec<(Uuid, (Timestamp, i64))>,
    bytes: usize,
}

impl Store {
    /// Emits the ticks of due crons, of all or of one, in one transaction, round-robin per canvas.
    /// `step` decides which ticks, given the database's clock and how many there is room for; crons
    /// that other processes are working on are left to them. `but`: crons to leave out, because
    /// earlier transactions left them as they are; they must not hold up the others.
    pub(crate) async fn tick(
        &self,
        only: Option<(CanvasId, &Name)>,
        but: &[(CanvasId, Name)],
        step: impl FnMut(&CronDue, Timestamp, usize) -> CronStep + Send,
    ) -> Result<TickOutcome, StoreError> {
        let mut session = self.session().await?.for_statements(STATEMENTS);
        let (emission, ahead) = (self.emission(), self.cron_ahead());
        let ticked = session.limit(|connection| tick(connection, only, but, emission, ahead, step)).await;
        session.answered("emit ticks", ticked).await
    }
}

struct DueRow {
    canvas_id: Uuid,
    name: String,
    expression: String,
    zone: String,
    modifier: String,
    value: String,
    missed: String,
    next_at: Timestamp,
    now: Timestamp,
    /// Ticks that were emitted before the schedule was restarted.
    emitted: Vec<Timestamp>,
}

impl DueRow {
    /// The cron, and the handler of its events.
    fn cron(&self) -> Option<(CronDue, HandlerAddress)> {
        let module = Name::cron();
        let address = address(self.canvas_id, module.as_str(), &self.name, &self.modifier).ok()?;
        let due = CronDue {
            canvas: address.scope.canvas,
            name: address.scope.name.clone(),
            expression: self.expression.clone(),
            zone: self.zone.clone(),
            missed: self.missed.clone(),
            next_at: self.next_at,
        };
        Some((due, address))
    }
}

async fn tick(
    connection: &mut PgConnection,
    only: Option<(CanvasId, &Name)>,
    but: &[(CanvasId, Name)],
    emission: Emission<'_>,
    ahead: Duration,
    mut step: impl FnMut(&CronDue, Timestamp, usize) -> CronStep + Send,
) -> Result<TickOutcome, sqlx::Error> {
    let (canvases, names): (Vec<_>, Vec<_>) =
        but.iter().map(|(canvas, name)| (canvas.0, name.to_string())).unzip();
    let mut transaction = connection.begin().await?;
    let due = sqlx::query_as!(
        DueRow,
        r#"with due as materialized (
               select canvas_id, name, next_at from wakeq.cron_records
                where next_at <= now() + $1::interval and ($2::uuid is null or canvas_id = $2) and ($3::text is null or name = $3)
                  and (canvas_id, name::text) not in (select * from unnest($5::uuid[], $6::text[]))
                order by next_at limit $7
           ), turns as materialized (
               select canvas_id, name, row_number() over (partition by canvas_id order by next_at) as turn from due
           )
           select c.canvas_id, c.name::text as "name!", c.expression, c.zone, c.modifier::text as "modifier!",
                  c.value::text as "value!", c.missed, c.next_at as "next_at!", clock_timestamp() as "now!",
                  array(select at from unnest(c.ahead_at) as before (at) where at >= c.next_at) as "emitted!"
             from turns t join wakeq.cron_records c on c.canvas_id = any (array[t.canvas_id]) and c.name = t.name
            where coalesce(c.next_at <= now() + $1::interval, false)
            order by t.turn, c.next_at limit $4 for update of c skip locked"#,
        interval(ahead),
        only.map(|(canvas, _)| canvas.0),
        only.map(|(_, name)| name.as_str()),
        CRONS,
        &canvases,
        &names,
        LOOKED_AT
    )
    .fetch_all(&mut *transaction)
    .await?;
    let (mut batch, mut left) = (TickWrites::default(), Vec::new());
    let mut more = due.len() as i64 == CRONS;
    for row in due {
        let room = batch.room(row.canvas_id, row.value.len());
        if room == 0 {
            more = true;
            continue;
        }
        let Some((due, address)) = row.cron() else { continue };
        let CronStep::Emit(mut ticks, next) = step(&due, row.now, room) else {
            left.push((due.canvas, due.name));
            continue;
        };
        more |= ticks.len() >= room;
        // Emitted before a change or a pause restarted the schedule; these could not be taken back.
        ticks.retain(|tick| !row.emitted.contains(tick));
        batch.add(&due, (ticks, next), &address, &row.value, row.now);
    }
    if batch.moved.is_empty() {
        transaction.rollback().await?;
        return Ok(TickOutcome { more: more && !left.is_empty(), left, ..TickOutcome::default() });
    }
    let inserted = batch.write(&mut transaction, emission).await?;
    transaction.commit().await?;
    let notifications = due_soon(&batch.events, &inserted);
    let copies = inserted.iter().flat_map(InsertOutcome::due_copies).copied().collect();
    Ok(TickOutcome { notifications, copies, events: batch.events, left, more })
}

/// Notifications of the events that are due within the horizon, and of their copies.
pub(super) fn due_soon(events: &[NewEvent], inserted: &[InsertOutcome]) -> Vec<Notification> {
    let due_soon = events.iter().zip(inserted).filter(|(_, inserted)| match inserted {
        InsertOutcome::New { due_soon, .. } => *due_soon,
        InsertOutcome::Known | InsertOutcome::Stands { .. } => false,
    });
    let ids = due_soon.flat_map(|(event, inserted)| {
        let canvas = event.address.scope.canvas;
        std::iter::once(&event.id)
            .chain(inserted.notified_copies())
            .map(move |id| Notification::new(*id, canvas))
    });
    ids.collect()
}

impl TickWrites {
    /// How many more events with values of this size fit, for this canvas.
    fn room(&self, canvas: Uuid, bytes: usize) -> usize {
        let of_canvas = self.events.iter().filter(|event| event.address.scope.canvas.0 == canvas).count();
        let by_count = EVENTS.saturating_sub(self.events.len()).min(CANVAS_EVENTS.saturating_sub(of_canvas));
        let by_bytes = BYTES.saturating_sub(self.bytes) / bytes.max(1);
        // One fits into an empty batch, however large it is.
        if self.moved.is_empty() { by_count.min(by_bytes.max(1)) } else { by_count.min(by_bytes) }
    }

    fn add(
        &mut self,
        due: &CronDue,
        (ticks, next): (Vec<Timestamp>, Option<Timestamp>),
        address: &HandlerAddress,
        value: &str,
        now: Timestamp,
    ) {
        let position = self.moved.len() as i64 + 1;
        let mut moved = CronMove {
            canvas: due.canvas.0,
            name: due.name.to_string(),
            seen: due.next_at,
            next,
            last: None,
            ticks: ticks.len() as i64,
        };
        self.bytes += ticks.len() * value.len();
        for tick in ticks {
            let event = NewEvent::new(address.clone(), value.to_owned());
            if tick > now {
                self.ahead.push((event.id.0, (tick, position)));
            } else {
                moved.last = Some((tick, event.id.0));
            }
            self.events.push(NewEvent { due: Due::At(tick), ..event });
        }
        self.moved.push(moved);
    }

    /// Inserts the events, and moves the fences.
    async fn write(
        &self,
        connection: &mut PgConnection,
        emission: Emission<'_>,
    ) -> Result<Vec<InsertOutcome>, sqlx::Error> {
        let chosen = vec![false; self.events.len()];
        let inserted = add_all(&mut *connection, &self.events, &chosen, emission).await?;
        self.moves(connection).await?;
        Ok(inserted)
    }

    /// Moves the fences, and adds the ticks emitted ahead to those that are still ahead. One clock
    /// decides what has come: a tick is still noted ahead, or has become the last one.
    async fn moves(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let moved = &self.moved;
        let nexts: Vec<_> = moved.iter().map(|moved| moved.next).collect();
        let (lasts, last_ids): (Vec<_>, Vec<_>) = moved.iter().map(|moved| moved.last.unzip()).unzip();
        let (ids, ahead): (Vec<Uuid>, Vec<(Timestamp, i64)>) = self.ahead.iter().copied().unzip();
        let (ticks, positions): (Vec<Timestamp>, Vec<i64>) = ahead.into_iter().unzip();
        sqlx::query!(
            r#"with moved as (
                   select * from unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[],
                                        $6::uuid[], $7::bigint[])
                       with ordinality as moved (canvas_id, name, seen, next_at, last_at, last_id, ticks, position)
               )
               update wakeq.cron_records c
                  set next_at = moved.next_at, ticks = c.ticks + moved.ticks,
                      (last_at, last_id) = (
                          select at, id from (values (c.last_at, c.last_id), (moved.last_at, moved.last_id)) as known (at, id)
                           where at is not null
                           union all
                          select at, id from unnest(c.ahead_at, c.ahead) as before (at, id) where at <= now()
                           order by at desc limit 1),
                      (ahead, ahead_at) = (
                          select coalesce(array_agg(id), '{}'), coalesce(array_agg(at), '{}') from (
                              select id, at from unnest(c.ahead, c.ahead_at) as before (id, at)
                               where at > now() or at >= moved.next_at
                               union all
                              select id, at from unnest($8::uuid[], $9::timestamptz[], $10::bigint[]) as new (id, at, position)
                               where position = moved.position) as all_ahead)
                 from moved
                where c.canvas_id = any (array[moved.canvas_id]) and c.name = moved.name
                  and coalesce(c.next_at = moved.seen, false)"#,
            &moved.iter().map(|moved| moved.canvas).collect::<Vec<_>>(),
            &moved.iter().map(|moved| moved.name.clone()).collect::<Vec<_>>(),
            &moved.iter().map(|moved| moved.seen).collect::<Vec<_>>(),
            nexts.as_slice() as &[Option<Timestamp>],
            lasts.as_slice() as &[Option<Timestamp>],
            last_ids.as_slice() as &[Option<Uuid>],
            &moved.iter().map(|moved| moved.ticks).collect::<Vec<_>>(),
            &ids,
            &ticks,
            &positions
        )
        .execute(connection)
        .await
        .map(drop)
    }
}
