//! Error groups: the dead events of a canvas by what they died of, and which of these errors are
//! known. Each mark writes its audit line in the same statement.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::{
    Actor, CanvasId, ErrorGroupId, EventId, HandlerScope, Timestamp, error_fingerprint as fingerprint,
};
use crate::store::kernel::{Store, StoreError, address};
use crate::store::quotas::serialize_on_canvas;

/// Maximum number of known errors of a canvas.
const KNOWN_MAX: i64 = 1000;
/// How many characters of an error are shown.
const ERROR_MAX: usize = 1000;

/// Dead events of a handler that died of the same error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorGroup {
    /// Its id, by which its events are selected.
    pub id: ErrorGroupId,
    /// The handler that the events were for.
    pub handler: HandlerScope,
    /// Why they died: `retries`, `poison`, `rejected` or `expired`.
    pub cause: String,
    /// The first line of their last errors, with `#` for what varies.
    pub fingerprint: String,
    /// How many of the dead events that were looked at are of it.
    pub count: u64,
    /// When the first of these died.
    pub first_died_at: Timestamp,
    /// When the last of these died.
    pub last_died_at: Timestamp,
    /// The one that died last.
    pub example: EventId,
    /// Its last error, up to 1,000 characters.
    pub error: Option<String>,
    /// Whether an operator has marked it as known, and what is known.
    pub known: Option<KnownError>,
}

/// What an operator knows about an error group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownError {
    /// What is known: a ticket, a cause, or what to do.
    pub note: Option<String>,
    /// Who marked it.
    pub by: String,
    /// When it was marked.
    pub at: Timestamp,
}

/// Which groups are listed, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorGroupsAsked<'g> {
    /// Only those of this handler.
    pub(crate) handler: Option<&'g HandlerScope>,
    /// Only those that are known, or that are not.
    pub(crate) known: Option<bool>,
    /// Whether the largest come first, and otherwise those with the latest death.
    pub(crate) by_count: bool,
    /// After this one.
    pub(crate) after: Option<ErrorGroupPosition>,
}

/// Where a group is in a list: its count, or when its last event died in microseconds; and its id.
pub(crate) type ErrorGroupPosition = (i64, ErrorGroupId);

/// A page of groups.
#[derive(Clone, Debug)]
pub(crate) struct FoundGroups {
    /// Each with its position.
    pub(crate) groups: Vec<(ErrorGroupPosition, ErrorGroup)>,
    /// How many dead events were looked at.
    pub(crate) looked_at: u64,
}

/// What came of marking a group as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnowOutcome {
    Known(KnownError),
    /// The canvas has neither dead events of the group nor a mark of it.
    Missing,
    /// As many are known as may be.
    TooMany,
}

/// A row of a page; without a group if the page is empty.
struct GroupRow {
    looked_at: i64,
    rank: Option<i64>,
    error_group: Option<Uuid>,
    count: Option<i64>,
    first_died_at: Option<Timestamp>,
    last_died_at: Option<Timestamp>,
    id: Option<Uuid>,
    module: Option<String>,
    name: Option<String>,
    cause: Option<String>,
    error: Option<String>,
    note: Option<String>,
    known_by: Option<String>,
    known_at: Option<Timestamp>,
}

impl GroupRow {
    fn into_group(self, canvas: CanvasId) -> Option<(ErrorGroupPosition, ErrorGroup)> {
        let id = ErrorGroupId(self.error_group?);
        let shown = |error: &String| error.chars().take(ERROR_MAX).collect();
        let group = ErrorGroup {
            id,
            handler: address(canvas.0, &self.module?, &self.name?, "_").ok()?.scope,
            cause: self.cause?,
            fingerprint: fingerprint(self.error.as_deref().unwrap_or_default()),
            count: self.count?.unsigned_abs(),
            first_died_at: self.first_died_at?,
            last_died_at: self.last_died_at?,
            example: EventId(self.id?),
            error: self.error.as_ref().map(shown),
            known: self.known_by.zip(self.known_at).map(|(by, at)| KnownError { note: self.note, by, at }),
        };
        Some(((self.rank?, id), group))
    }
}

/// A query for [`GroupRow`]s: of the up to `$2` dead events that a source reads, the latest first.
/// The text of an error is read as far as it is shown, or decides about its fingerprint.
macro_rules! group_rows {
    ($source:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            GroupRow,
            r#"with looked as (
                   select d.error_group, d.died_at, $3 or d.queue is null or wakeq.is_shown(d.queue) as is_shown
                     from wakeq.dead_events d "# + $source + r#"
               ), grouped as (
                   select error_group, count(*) as looked_at, count(*) filter (where is_shown) as count,
                          min(died_at) filter (where is_shown) as first_died_at,
                          max(died_at) filter (where is_shown) as last_died_at
                     from looked group by error_group
               ), ranked as (
                   select g.*, k.note, k.known_by, k.known_at,
                          case when $4 then g.count else (extract(epoch from g.last_died_at) * 1000000)::bigint end as rank
                     from grouped g left join lateral (
                          select k.note, k.known_by, k.known_at from wakeq.known_errors k
                           where k.canvas_id = $1 and k.error_group = g.error_group offset 0) as k on true
                    where g.count > 0 and ($5::boolean is null or $5 = (k.known_at is not null))
               ), page as (
                   select * from ranked r where $6::bigint is null or (r.rank, r.error_group) < ($6, $7::uuid)
                    order by r.rank desc, r.error_group desc limit $8
               )
               select (select coalesce(sum(g.looked_at), 0)::bigint from grouped g) as "looked_at!", p.rank as "rank?",
                      p.error_group as "error_group?", p.count as "count?", p.first_died_at as "first_died_at?",
                      p.last_died_at as "last_died_at?", e.id as "id?", e.module as "module?", e.name as "name?",
                      e.cause as "cause?", e.error as "error?", p.note as "note?", p.known_by as "known_by?",
                      p.known_at as "known_at?"
                 from (values (1)) as one left join (
                      page p cross join lateral (
                          select e.id, e.module::text as module, e.name::text as name, e.cause, left(e.last_error, 2000) as error
                            from wakeq.dead_events e
                           where e.canvas_id = $1 and e.error_group = p.error_group and e.died_at = p.last_died_at
                             and ($3 or e.queue is null or wakeq.is_shown(e.queue))
                           order by e.canvas_id desc, e.error_group desc, e.died_at desc, e.id desc
                           limit 1) as e) on true
                order by p.rank desc, p.error_group desc"#,
            $($argument)*
        )
    };
}

impl Store {
    /// The groups of up to `look` dead events of a canvas, or of a handler, that died last: a page
    /// of up to `limit`. Copies in queues are counted if their queue shows them, or with `copies`
    /// all.
    pub(crate) async fn error_groups(
        &self,
        canvas: CanvasId,
        asked: ErrorGroupsAsked<'_>,
        copies: bool,
        (look, limit): (i64, i64),
    ) -> Result<FoundGroups, StoreError> {
        let rows = match asked.handler {
            Some(handler) => self.groups_of_handler(canvas, (asked, handler), copies, (look, limit)).await?,
            None => self.groups_of_canvas(canvas, asked, copies, (look, limit)).await?,
        };
        let looked_at = rows.first().map_or(0, |row| row.looked_at.unsigned_abs());
        Ok(FoundGroups {
            groups: rows.into_iter().filter_map(|row| row.into_group(canvas)).collect(),
            looked_at,
        })
    }

    async fn groups_of_canvas(
        &self,
        canvas: CanvasId,
        asked: ErrorGroupsAsked<'_>,
        copies: bool,
        (look, limit): (i64, i64),
    ) -> Result<Vec<GroupRow>, StoreError> {
        let query = group_rows!(
            r#"where d.canvas_id = $1 and d.died_at > '-infinity'
                    order by d.canvas_id desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            copies,
            asked.by_count,
            asked.known,
            asked.after.map(|(rank, _)| rank),
            asked.after.map(|(_, group)| group.0),
            limit
        );
        self.session().await?.all("group dead events", query).await
    }

    async fn groups_of_handler(
        &self,
        canvas: CanvasId,
        (asked, handler): (ErrorGroupsAsked<'_>, &HandlerScope),
        copies: bool,
        (look, limit): (i64, i64),
    ) -> Result<Vec<GroupRow>, StoreError> {
        let query = group_rows!(
            r#"where d.canvas_id = $1 and d.module = $9::text and d.name = $10::text and d.module <> ''
                    order by d.canvas_id desc, d.module desc, d.name desc, d.died_at desc, d.id desc limit $2"#,
            canvas.0,
            look,
            copies,
            asked.by_count,
            asked.known,
            asked.after.map(|(rank, _)| rank),
            asked.after.map(|(_, group)| group.0),
            limit,
            handler.module.as_str(),
            handler.name.as_str()
        );
        self.session().await?.all("group a handler's dead events", query).await
    }

    /// One group of a canvas, of up to `look` of its events; `None` if the canvas has no dead event
    /// of it.
    pub(crate) async fn error_group(
        &self,
        canvas: CanvasId,
        group: ErrorGroupId,
        copies: bool,
        look: i64,
    ) -> Result<Option<ErrorGroup>, StoreError> {
        let query = sqlx::query_as!(
            GroupRow,
            r#"with looked as (
                   select d.died_at, $4 or d.queue is null or wakeq.is_shown(d.queue) as is_shown
                     from wakeq.dead_events d where d.canvas_id = $1 and d.error_group = $2
                    order by d.canvas_id desc, d.error_group desc, d.died_at desc, d.id desc limit $3
               ), counted as (
                   select count(*) as looked_at, count(*) filter (where is_shown) as count,
                          min(died_at) filter (where is_shown) as first_died_at,
                          max(died_at) filter (where is_shown) as last_died_at
                     from looked
               )
               select c.looked_at as "looked_at!", 0::bigint as "rank?", $2::uuid as "error_group?", c.count as "count?",
                      c.first_died_at as "first_died_at?", c.last_died_at as "last_died_at?", e.id as "id?",
                      e.module as "module?", e.name as "name?", e.cause as "cause?", e.error as "error?", k.note as "note?",
                      k.known_by as "known_by?", k.known_at as "known_at?"
                 from counted c
                cross join lateral (
                      select e.id, e.module::text as module, e.name::text as name, e.cause, left(e.last_error, 2000) as error
                        from wakeq.dead_events e
                       where e.canvas_id = $1 and e.error_group = $2 and e.died_at = c.last_died_at
                         and ($4 or e.queue is null or wakeq.is_shown(e.queue))
                       order by e.canvas_id desc, e.error_group desc, e.died_at desc, e.id desc limit 1) as e
                 left join lateral (
                      select k.note, k.known_by, k.known_at from wakeq.known_errors k
                       where k.canvas_id = $1 and k.error_group = $2 offset 0) as k on true"#,
            canvas.0,
            group.0,
            look,
            copies
        );
        let row = self.session().await?.optional("look for an error group", query).await?;
        Ok(row.and_then(|row| row.into_group(canvas)).map(|(_, group)| group))
    }

    /// Marks a group as known, or replaces what is known of it.
    pub(crate) async fn know_error(
        &self,
        canvas: CanvasId,
        group: ErrorGroupId,
        (note, copies): (Option<&str>, bool),
        actor: &Actor,
    ) -> Result<KnowOutcome, StoreError> {
        let mut session = self.session().await?.for_statements(4);
        let known = session.limit(|connection| know(connection, canvas, group, (note, copies), actor)).await;
        session.answered("mark an error as known", known).await
    }

    /// Removes the mark of a group; returns whether there was one.
    pub(crate) async fn forget_error(
        &self,
        canvas: CanvasId,
        group: ErrorGroupId,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.known_errors where canvas_id = $1 and error_group = $2 returning error_group
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $1, $3, 'forget-error', 'done', $4, concat_ws('; ', $5::text, 'group ' || error_group) from gone
               )
               select exists (select from gone) as "gone!""#,
            canvas.0,
            group.0,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("forget a known error", query).await
    }
}

/// Writes the mark while no other one of the canvas is written, so that they are no more than the
/// canvas may have.
async fn know(
    connection: &mut PgConnection,
    canvas: CanvasId,
    group: ErrorGroupId,
    (note, copies): (Option<&str>, bool),
    actor: &Actor,
) -> Result<KnowOutcome, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    serialize_on_canvas(&mut transaction, canvas).await?;
    let row = sqlx::query!(
        r#"with others as (
               select count(*) as count from (
                   select from wakeq.known_errors where canvas_id = $1 and error_group <> $2 limit $5::bigint) as counted
           ), met as (
               select exists (select from wakeq.known_errors where canvas_id = $1 and error_group = $2)
                   or exists (select from wakeq.dead_events d
                               where d.canvas_id = $1 and d.error_group = $2
                                 and ($6 or d.queue is null or wakeq.is_shown(d.queue))
                               order by d.canvas_id, d.error_group, d.died_at, d.id offset 0) as is_met
           ), known as (
               insert into wakeq.known_errors (canvas_id, error_group, note, known_by)
               select $1, $2, $3, $4 from others, met where count < $5::bigint and is_met
                   on conflict (canvas_id, error_group) do update
                  set note = excluded.note, known_by = excluded.known_by, known_at = now(), looked_at = now()
            returning known_at
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
               select $1, $4, 'know-error', 'done', $7,
                      left(concat_ws('; ', $8::text, 'group ' || $2::uuid, $3::text), 1000) from known
           )
           select is_met as "is_met!", (select known_at from known) as known_at from met"#,
        canvas.0,
        group.0,
        note,
        actor.name(),
        KNOWN_MAX,
        copies,
        actor.request_id(),
        actor.credential_id()
    )
    .fetch_one(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(match row.known_at {
        Some(at) => {
            KnowOutcome::Known(KnownError { note: note.map(str::to_owned), by: actor.name().into(), at })
        }
        None if row.is_met => KnowOutcome::TooMany,
        None => KnowOutcome::Missing,
    })
}
