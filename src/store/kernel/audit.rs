//! The audit log of changes, refusals and reads. A change is recorded by the statement that makes
//! it. Here are the lines about calls that changed nothing, and reading the log.

use uuid::Uuid;

use super::{Sql, Store, StoreError};
use crate::event::{Actor, CanvasId, EventId, HandlerScope, Name, Timestamp, is_storable};

/// Longest detail, in characters.
const DETAIL_MAX: usize = 1000;

/// Whether an action took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuditOutcome {
    /// It took effect.
    Done,
    /// It was not permitted; nothing changed.
    Refused,
}

impl AuditOutcome {
    /// One word: `done` or `refused`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
        }
    }
}

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Increasing, though not always in the order of the commits.
    pub id: i64,
    /// When it happened.
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// The action, such as `pause`, `unpause`, `block`, `unblock`, `cancel`, `cancel-running`,
    /// `run-now`, `set-due`, `set-tags`, `purge`, `redrive`, `delete-dead`, `know-error`,
    /// `forget-error`, `erase-entity`, `create-key`, `revoke-key`, `allow-account`,
    /// `remove-account` or `sign-in`; or any name that a program recorded itself.
    pub action: String,
    /// The handler's module, if it was about one handler.
    pub module: Option<String>,
    /// The handler's name, if it was about one handler.
    pub name: Option<String>,
    /// The event, if it was about one.
    pub event_id: Option<EventId>,
    /// Whether it took effect.
    pub outcome: AuditOutcome,
    /// Free text: the public part of the actor's credential, if it has one, and the address it came
    /// from; then, for example, the reason of a pause, the key or account concerned, or why it was
    /// refused.
    pub detail: Option<String>,
    /// How many events it was about, or how often it was refused.
    pub times: i32,
    /// The request that caused it.
    pub request_id: Option<String>,
}

/// Which lines of the audit log are asked for: those that meet every condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// This action.
    pub action: Option<String>,
    /// By this actor.
    pub actor: Option<String>,
    /// About a handler of this module.
    pub module: Option<Name>,
    /// About a handler of this name.
    pub name: Option<Name>,
    /// About this event.
    pub event_id: Option<EventId>,
    /// With this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Whose detail contains this text, such as the public part of a key. 1 to 200 characters, none
    /// of them NUL.
    pub detail_text: Option<String>,
    /// Written at or after this time.
    pub since: Option<Timestamp>,
    /// Written before this time.
    pub before: Option<Timestamp>,
}

/// Where a page of the audit log ended: when its last line was written, and the line's id.
pub(crate) type AuditPosition = (Timestamp, i64);

/// A line that was looked at, the `number`th, and whether it meets the filter.
#[derive(Clone, Debug)]
pub(crate) struct LookedLine {
    pub(crate) entry: AuditEntry,
    pub(crate) is_meant: bool,
    pub(crate) number: i64,
}

/// An action that was requested and not permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The canvas it was about.
    pub canvas: CanvasId,
    /// The actor that asked.
    pub actor: Actor,
    /// The requested action, in 1 to 64 characters, such as `unblock`.
    pub action: String,
    /// The handler it was about.
    pub scope: Option<HandlerScope>,
    /// The event it was about.
    pub event: Option<EventId>,
    /// Why it was refused; truncated to 1,000 characters.
    pub detail: Option<String>,
    /// How often; at least once.
    pub times: u32,
}

/// A line of the audit log about something that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// The outcome of the action.
    pub outcome: AuditOutcome,
    /// `None`: about every canvas.
    pub canvas: Option<CanvasId>,
    /// The caller.
    pub actor: Actor,
    /// The operation.
    pub action: String,
    /// The handler that it was about.
    pub scope: Option<HandlerScope>,
    /// The event that it was about.
    pub event: Option<EventId>,
    /// Anything else worth knowing.
    pub detail: Option<String>,
    /// How many equal calls the line stands for.
    pub times: u32,
}

impl AuditFilter {
    /// Refuses texts that no line has, and moments that Postgres can't store.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_text = |text: Option<&str>, most: usize| {
            text.is_none_or(|text| (1..=most).contains(&text.chars().count()) && !text.contains('\0'))
        };
        if !is_text(self.action.as_deref(), 64) {
            return Err("an action has 1 to 64 characters, none of them NUL");
        }
        if !is_text(self.actor.as_deref(), 200) || !is_text(self.detail_text.as_deref(), 200) {
            return Err("an actor and a text have 1 to 200 characters, none of them NUL");
        }
        if ![self.since, self.before].into_iter().flatten().all(is_storable) {
            return Err("a moment lies in the years 1 to 9999");
        }
        Ok(())
    }

    /// Whether it has no condition on the lines themselves: each that is looked at meets it.
    pub(crate) fn is_open(&self) -> bool {
        let Self { action, actor, module, name, event_id, outcome, detail_text, since: _, before: _ } = self;
        let texts = action.is_none() && actor.is_none() && detail_text.is_none();
        texts && module.is_none() && name.is_none() && event_id.is_none() && outcome.is_none()
    }
}

impl From<&Refusal> for AuditLine {
    fn from(refusal: &Refusal) -> Self {
        let Refusal { canvas, actor, action, scope, event, detail, times } = refusal.clone();
        Self {
            outcome: AuditOutcome::Refused,
            canvas: Some(canvas),
            actor,
            action,
            scope,
            event,
            detail,
            times,
        }
    }
}

impl Store {
    /// Writes lines about what changed nothing.
    #[doc(hidden)]
    pub async fn note(&self, notes: &[AuditLine]) -> Result<(), StoreError> {
        let new = AuditColumns::of(notes);
        let query = sqlx::query!(
            "insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, detail, times, request_id)
             select canvas_id, actor, action, module, name, event_id, outcome, detail, times, request_id
               from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[],
                           $8::integer[], $9::text[], $10::text[])
                    as new (canvas_id, actor, action, module, name, event_id, detail, times, request_id, outcome)",
            new.canvases.as_slice() as &[Option<Uuid>],
            &new.actors,
            &new.actions,
            new.modules.as_slice() as &[Option<String>],
            new.names.as_slice() as &[Option<String>],
            new.events.as_slice() as &[Option<Uuid>],
            new.details.as_slice() as &[Option<String>],
            &new.times,
            new.requests.as_slice() as &[Option<String>],
            &new.outcomes,
        );
        self.session().await?.execute("add to the audit log", query).await.map(drop)
    }

    /// The audit log of a canvas, the newest first, after a position; with `platform` also the
    /// lines about every canvas. Looks at as many lines as the first of `looks` says, and returns
    /// up to as many as the second: those that meet the filter, and the last that was looked at.
    // Two bounds that begin with the canvas mean no other one, and leave the planner the index of
    // the canvas alone: that of all times has the lines of all.
    pub(crate) async fn audit(
        &self,
        (canvas, platform): (CanvasId, bool),
        filter: &AuditFilter,
        after: Option<AuditPosition>,
        looks: (i64, i64),
    ) -> Result<Vec<LookedLine>, StoreError> {
        let (before, below) = after.into_iter().chain(filter.before.map(|at| (at, i64::MIN))).min().unzip();
        let query = sqlx::query_as!(
            LookedRow,
            r#"select id as "id!", at as "at!", actor as "actor!", action as "action!", module, name, event_id,
                      outcome as "outcome!", detail, times as "times!", request_id, is_meant as "is_meant!",
                      number as "number!"
                 from (select l.id, l.at, l.actor, l.action, l.module::text as module, l.name::text as name, l.event_id,
                              l.outcome, l.detail, l.times, l.request_id, row_number() over newest as number,
                              lead(l.id) over newest is null as is_last,
                              coalesce(($6::text is null or l.action = $6) and ($7::text is null or l.actor = $7)
                                       and ($8::text is null or l.module::text = $8)
                                       and ($9::text is null or l.name::text = $9)
                                       and ($10::uuid is null or l.event_id = $10)
                                       and ($11::text is null or l.outcome = $11)
                                       and ($12::text is null or strpos(l.detail, $12) > 0), false) as is_meant
                         from (select * from ((select * from wakeq.audit_log
                                                where (canvas_id, at, id)
                                                      < ($1::uuid, coalesce($2::timestamptz, 'infinity'), $3::bigint)
                                                  and (canvas_id, at) >= ($1, coalesce($4::timestamptz, '-infinity'))
                                                order by canvas_id desc, at desc, id desc limit $5)
                                               union all
                                              (select * from wakeq.audit_log
                                                where $13 and canvas_id is null
                                                  and (at, id) < (coalesce($2::timestamptz, 'infinity'), $3::bigint)
                                                  and at >= coalesce($4::timestamptz, '-infinity')
                                                order by canvas_id desc, at desc, id desc limit $5)) as lines
                                order by at desc, id desc limit $5) as l
                       window newest as (order by l.at desc, l.id desc)) as looked
                where is_meant or is_last
                order by at desc, id desc limit $14"#,
            canvas.0,
            before,
            below.unwrap_or(i64::MAX),
            filter.since,
            looks.0,
            filter.action,
            filter.actor,
            filter.module.as_ref().map(Name::as_str),
            filter.name.as_ref().map(Name::as_str),
            filter.event_id.map(|id| id.0),
            filter.outcome.map(AuditOutcome::as_str),
            filter.detail_text,
            platform,
            looks.1
        );
        let rows = self.session().await?.all("read the audit log", query).await?;
        Ok(rows.into_iter().map(LookedRow::into_line).collect())
    }
}

struct LookedRow {
    id: i64,
    at: Timestamp,
    actor: String,
    action: String,
    module: Option<String>,
    name: Option<String>,
    event_id: Option<Uuid>,
    outcome: String,
    detail: Option<String>,
    times: i32,
    request_id: Option<String>,
    is_meant: bool,
    number: i64,
}

impl LookedRow {
    fn into_line(self) -> LookedLine {
        LookedLine {
            entry: AuditEntry {
                id: self.id,
                at: self.at,
                actor: self.actor,
                action: self.action,
                module: self.module,
                name: self.name,
                event_id: self.event_id.map(EventId),
                outcome: if self.outcome == "done" { AuditOutcome::Done } else { AuditOutcome::Refused },
                detail: self.detail,
                times: self.times,
                request_id: self.request_id,
            },
            is_meant: self.is_meant,
            number: self.number,
        }
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn note_wake_all(&self) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "insert into wakeq.audit_log (actor, action, outcome)
             values (left('database:' || session_user, 200), 'wake-all', 'done')"
        );
        self.session().await?.execute("add to the audit log", query).await.map(drop)
    }
}

/// Lines as columns, for `unnest`.
#[derive(Default)]
struct AuditColumns {
    outcomes: Vec<String>,
    canvases: Vec<Option<Uuid>>,
    actors: Vec<String>,
    actions: Vec<String>,
    modules: Vec<Option<String>>,
    names: Vec<Option<String>>,
    events: Vec<Option<Uuid>>,
    details: Vec<Option<String>>,
    times: Vec<i32>,
    requests: Vec<Option<String>>,
}

impl AuditColumns {
    fn of(notes: &[AuditLine]) -> Self {
        let mut columns = Self::default();
        for note in notes {
            columns.outcomes.push(note.outcome.as_str().to_owned());
            columns.canvases.push(note.canvas.map(|canvas| canvas.0));
            columns.actors.push(note.actor.name().into());
            columns.actions.push(note.action.clone());
            columns.modules.push(note.scope.as_ref().map(|scope| scope.module.to_string()));
            columns.names.push(note.scope.as_ref().map(|scope| scope.name.to_string()));
            columns.events.push(note.event.map(|id| id.0));
            columns.details.push(detail(note));
            columns.times.push(i32::try_from(note.times.max(1)).unwrap_or(i32::MAX));
            columns.requests.push(note.actor.request_id().map(Into::into));
        }
        columns
    }
}

fn detail(note: &AuditLine) -> Option<String> {
    let parts: Vec<&str> = note.actor.credential_id().into_iter().chain(note.detail.as_deref()).collect();
    let cut = |text: String| text.chars().filter(|character| *character != '\0').take(DETAIL_MAX).collect();
    (!parts.is_empty()).then(|| cut(parts.join("; ")))
}
