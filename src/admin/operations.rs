//! Operations: what is done to all events that match a filter, or are named. Each is a row. The
//! process that began it carries it on at once, and the minute's pass of any process does where
//! that one died.

use std::time::Duration;

use tokio::time::Instant;

use super::{Admin, AdminError, COUNT_MAX, Cursor, LIST_MAX, Page, checked};
use crate::event::{Actor, CanvasId, IdempotencyKey, NewOperation, Operation, OperationId, OperationPreview};
use crate::store::{BegunOperation, KeyedBegin, OPERATIONS_OPEN_MAX, OperationEvents};

/// How many events are looked at when an operation begins, to say how many match.
const PREVIEW_MAX: u64 = 10_000;
/// How many events one statement of a preview looks at, and the factor by which that shrinks if it
/// takes too long.
const PREVIEW_PAGE: u64 = 10_000;
const SHRINK: u64 = 32;
/// How long a preview goes on before it says that there are more: large values take long to look
/// into, and whoever begins an operation waits for its preview.
const PREVIEW_FOR: Duration = Duration::from_secs(10);

/// The result of beginning an operation under an idempotency key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BeginResult {
    /// The operation, as it is now.
    pub operation: Operation,
    /// Whether an earlier call with the key had begun it: this one began nothing.
    pub replayed: bool,
}

impl Admin {
    /// What an operation would change now: looks at up to `look_up_to` events, 1 to [`COUNT_MAX`],
    /// for some 10 s at most, and changes nothing.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    /// use wakeq::control::{EventFilter, NewOperation, OperationKind};
    ///
    /// let filter = EventFilter { name: Some("send-email".parse()?), ..EventFilter::default() };
    /// let cancel = NewOperation::new(OperationKind::Cancel, filter);
    /// let preview = admin.preview_operation(CanvasId::DEFAULT, &cancel, 100_000).await?;
    /// println!("{} events, and maybe more: {}", preview.count, preview.more);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preview_operation(
        &self,
        canvas: CanvasId,
        new: &NewOperation,
        look_up_to: u64,
    ) -> Result<OperationPreview, AdminError> {
        new.check()?;
        let before = self.until_now(new.before).await?;
        let NewOperation { kind, filter, .. } = new;
        let (ids, copies) = (new.ids(), self.copies);
        let events = OperationEvents { canvas, kind, filter, ids, before, copies };
        let mut left = look_up_to.clamp(1, COUNT_MAX);
        let mut preview = OperationPreview { count: 0, more: true, looked_at: 0, before };
        let (mut after, mut page) = (None, PREVIEW_PAGE);
        let until = Instant::now() + PREVIEW_FOR;
        while left > 0 && preview.more && Instant::now() < until {
            let limit = left.min(page);
            let looked = match self.store.look_for_operation(events, after.as_ref(), limit, false).await {
                Err(error) if error.is_too_long() && page > 1 => {
                    page = (limit / SHRINK).max(1);
                    continue;
                }
                looked => looked?,
            };
            preview.count += looked.matched;
            preview.looked_at += looked.looked_at;
            preview.more = looked.looked_at >= limit && looked.last.is_some();
            left = left.saturating_sub(looked.looked_at);
            after = looked.last;
        }
        if preview.more {
            let next = self.store.look_for_operation(events, after.as_ref(), 1, false).await?;
            preview.more = next.looked_at > 0;
        }
        Ok(preview)
    }

    /// Begins an operation: what it does is done to each event that matches its filter, or that it
    /// names, and was emitted, or died, before this call. It returns at once. This process carries
    /// the operation on, page by page, and the minute's pass of any process does if this one dies.
    /// Each page changes its events and the operation's row in one transaction, so that no event is
    /// changed or counted twice. [`Admin::operation`] says how far it has come.
    ///
    /// A canvas has at most 10 open operations. Ended ones are kept for 14 days, and at most 1,000
    /// of a canvas in all.
    ///
    /// ```
    /// use wakeq::control::{EventFilter, NewOperation, OperationKind};
    /// use wakeq::testing::TestKit;
    /// use wakeq::{Actor, CanvasId, Event, Handlers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("greet", |_event| async { Ok(()) }))?;
    /// kit.emit(Event::new("greet", "Ada")?).await?;
    /// let filter = EventFilter { name: Some("greet".parse()?), ..EventFilter::default() };
    /// let cancel = NewOperation::new(OperationKind::Cancel, filter);
    ///
    /// let (admin, ada) = (kit.admin().clone(), Actor::user("ada"));
    /// let begun = admin.begin_operation(CanvasId::DEFAULT, &cancel, &ada).await?;
    /// assert_eq!(begun.preview_count, 1);
    /// while admin.operation(CanvasId::DEFAULT, begun.id).await?.ended_at.is_none() {
    ///     tokio::task::yield_now().await;
    /// }
    /// assert_eq!(admin.operation(CanvasId::DEFAULT, begun.id).await?.changed, 1);
    /// assert_eq!(kit.drain().await?.completed, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin_operation(
        &self,
        canvas: CanvasId,
        new: &NewOperation,
        actor: &Actor,
    ) -> Result<Operation, AdminError> {
        checked(actor)?;
        let preview = self.preview_operation(canvas, new, PREVIEW_MAX).await?;
        let begun = self.store.begin_operation(canvas, new, (&preview, self.copies), actor).await?;
        let begun = begun.ok_or(AdminError::TooManyOperations(OPERATIONS_OPEN_MAX))?;
        Ok(self.carry_on(begun))
    }

    /// Like [`Admin::begin_operation`] on the canvas of a key, once within 24 hours: a further call
    /// with the same key and fingerprint begins nothing, and returns the operation of the first.
    ///
    /// ```
    /// use wakeq::control::{EventFilter, NewOperation, OperationKind};
    /// use wakeq::events::IdempotencyKey;
    /// use wakeq::testing::TestKit;
    /// use wakeq::{Actor, CanvasId};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let kit = TestKit::new();
    /// let filter = EventFilter { name: Some("greet".parse()?), ..EventFilter::default() };
    /// let cancel = NewOperation::new(OperationKind::Cancel, filter);
    /// let key = IdempotencyKey::new(CanvasId::DEFAULT, "ada", "cleanup-7", b"a hash of the request")?;
    ///
    /// let first = kit.admin().begin_operation_once(&key, &cancel, &Actor::user("ada")).await?;
    /// let again = kit.admin().begin_operation_once(&key, &cancel, &Actor::user("ada")).await?;
    /// assert_eq!((again.operation.id, again.replayed), (first.operation.id, true));
    /// # Ok(())
    /// # }
    /// ```
    // The key is not refused for the quota of keys: a canvas that is full must still be cleaned up,
    // and each operation has a line in the audit log, which has a quota of its own.
    pub async fn begin_operation_once(
        &self,
        key: &IdempotencyKey,
        new: &NewOperation,
        actor: &Actor,
    ) -> Result<BeginResult, AdminError> {
        checked(actor)?;
        let preview = self.preview_operation(key.canvas, new, PREVIEW_MAX).await?;
        match self.store.begin_operation_once(key, new, (&preview, self.copies), actor).await? {
            KeyedBegin::Begun(begun) => Ok(BeginResult { operation: self.carry_on(*begun), replayed: false }),
            KeyedBegin::Replayed(id) => {
                Ok(BeginResult { operation: self.operation(key.canvas, id).await?, replayed: true })
            }
            KeyedBegin::TooMany => Err(AdminError::TooManyOperations(OPERATIONS_OPEN_MAX)),
            KeyedBegin::Mismatch => Err(AdminError::IdempotencyMismatch),
            KeyedBegin::InProgress => Err(AdminError::IdempotencyInProgress),
        }
    }

    /// Carries an operation on that was begun just now.
    fn carry_on(&self, begun: BegunOperation) -> Operation {
        crate::fault::point("operation.begun");
        let BegunOperation { operation, job } = begun;
        let (waker, canvas, publishes) = (self.waker.clone(), operation.canvas, operation.kind.publishes());
        tokio::spawn(async move {
            if let Err(error) = waker.carry_on_operation(canvas, job, publishes).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(job, error, "an operation stopped; a worker carries on within a minute");
            }
        });
        operation
    }

    /// An operation of the canvas, and how far it has come.
    pub async fn operation(&self, canvas: CanvasId, id: OperationId) -> Result<Operation, AdminError> {
        self.store.operation(canvas, id).await?.ok_or(AdminError::NoOperation(id))
    }

    /// The operations of a canvas, the latest first: up to `limit`, 1 to [`LIST_MAX`].
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), wakeq::AdminError> {
    /// use wakeq::{Actor, CanvasId};
    ///
    /// for operation in admin.operations(CanvasId::DEFAULT, None, 100).await?.items {
    ///     let latest = admin.operation(CanvasId::DEFAULT, operation.id).await?;
    ///     println!("{} has changed {} events", operation.kind.as_str(), latest.changed);
    ///     admin.cancel_operation(CanvasId::DEFAULT, operation.id, &Actor::user("ada")).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn operations(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Operation>, AdminError> {
        let after = cursor.map(Cursor::operation).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.operations(canvas, after, limit as i64 + 1).await?;
        Ok(Page::of(found, limit, |last| Cursor::of_operation((last.started_at, last.id))))
    }

    /// Cancels an operation. Once this has returned, no further page of it begins. What it has done
    /// stays, and the result says how much that is. One that has ended stays as it is, and so does
    /// one that this release can't read, for which it is [`AdminError::NoOperation`].
    pub async fn cancel_operation(
        &self,
        canvas: CanvasId,
        id: OperationId,
        actor: &Actor,
    ) -> Result<Operation, AdminError> {
        checked(actor)?;
        let cancelled = self.store.cancel_operation(canvas, id, actor).await?;
        cancelled.ok_or(AdminError::NoOperation(id))
    }
}
