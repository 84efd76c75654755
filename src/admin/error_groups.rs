//! Error groups: what dead events died of, how many of each, and which errors are known.

use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{Actor, CanvasId, ErrorGroupId, HandlerScope};
use crate::store::{ErrorGroup, ErrorGroupsAsked, KnowOutcome, KnownError};

/// How many dead events are grouped at most, those that died last.
const LOOK_MAX: i64 = 100_000;
/// Longest note, in characters.
const NOTE_MAX: usize = 1000;

/// Which error groups to list, and in which order: by default all, the largest first.
///
/// ```
/// use wakeq::control::{ErrorGroupFilter, ErrorGroupOrder};
///
/// let new = ErrorGroupFilter { known: Some(false), ..ErrorGroupFilter::default() };
/// assert_eq!((new.order, new.handler), (ErrorGroupOrder::Count, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorGroupFilter {
    /// Only those of this handler.
    pub handler: Option<HandlerScope>,
    /// Only those that are marked as known, or only those that are not.
    pub known: Option<bool>,
    /// Which come first.
    pub order: ErrorGroupOrder,
}

/// The order of a list of error groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorGroupOrder {
    /// Those with the most events first.
    #[default]
    Count,
    /// Those of which an event died last first.
    LastDied,
}

/// A page of error groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorGroups {
    /// The groups, with how many dead events were grouped.
    pub page: Page<ErrorGroup>,
    /// Whether there may be older dead events, which were not grouped.
    pub more: bool,
}

impl Admin {
    /// What the dead events of a canvas died of: up to `limit` groups, 1 to [`LIST_MAX`]. At most
    /// 100,000 dead events are grouped, those that died last. The groups are counted anew for each
    /// page, so that one that grows or shrinks between two pages may be on both or on neither.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), wakeq::AdminError> {
    /// use wakeq::control::ErrorGroupFilter;
    ///
    /// for group in admin.error_groups(canvas, &ErrorGroupFilter::default(), None, 100).await?.page.items {
    ///     println!("{} of {}: {}", group.count, group.handler, group.fingerprint);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn error_groups(
        &self,
        canvas: CanvasId,
        filter: &ErrorGroupFilter,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<ErrorGroups, AdminError> {
        let asked = ErrorGroupsAsked {
            handler: filter.handler.as_ref(),
            known: filter.known,
            by_count: match filter.order {
                ErrorGroupOrder::Count => true,
                ErrorGroupOrder::LastDied => false,
            },
            after: cursor.map(Cursor::error_group).transpose()?,
        };
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let looks = (LOOK_MAX, limit as i64 + 1);
        let found = self.store.error_groups(canvas, asked, self.copies, looks).await?;
        let mut groups = found.groups;
        let more = groups.len() > limit;
        groups.truncate(limit);
        let next = groups.last().filter(|_| more).map(|(position, _)| Cursor::of_error_group(*position));
        let items = groups.into_iter().map(|(_, group)| group).collect();
        Ok(ErrorGroups {
            page: Page { items, next, looked_at: found.looked_at },
            more: found.looked_at >= LOOK_MAX.unsigned_abs(),
        })
    }

    /// One error group of a canvas. Its count is at most 100,000, which stands for that many or
    /// more. Errors: [`AdminError::NoErrorGroup`] if the canvas has no dead event of it.
    pub async fn error_group(&self, canvas: CanvasId, group: ErrorGroupId) -> Result<ErrorGroup, AdminError> {
        let found = self.store.error_group(canvas, group, self.copies, LOOK_MAX).await?;
        found.ok_or(AdminError::NoErrorGroup(group))
    }

    /// Marks an error group as known, with a note of 1 to 1,000 characters that says what is known.
    /// A mark that there is already is replaced. It is forgotten when no event of the group has
    /// died for as long as dead events are kept.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, canvas: wakeq::CanvasId) -> Result<(), wakeq::AdminError> {
    /// use wakeq::Actor;
    /// use wakeq::control::ErrorGroupFilter;
    ///
    /// let new = ErrorGroupFilter { known: Some(false), ..ErrorGroupFilter::default() };
    /// for group in admin.error_groups(canvas, &new, None, 1).await?.page.items {
    ///     admin.know_error(canvas, group.id, Some("ticket 17"), &Actor::user("ada")).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`AdminError::NoErrorGroup`] if the canvas has neither a dead event of it nor a
    /// mark, and [`AdminError::TooManyKnownErrors`].
    pub async fn know_error(
        &self,
        canvas: CanvasId,
        group: ErrorGroupId,
        note: Option<&str>,
        actor: &Actor,
    ) -> Result<KnownError, AdminError> {
        checked(actor)?;
        if note.is_some_and(|note| !(1..=NOTE_MAX).contains(&note.chars().count()) || note.contains('\0')) {
            return Err(AdminError::Invalid("the note must have 1 to 1,000 characters, none of them NUL"));
        }
        match self.store.know_error(canvas, group, (note, self.copies), actor).await? {
            KnowOutcome::Known(known) => Ok(known),
            KnowOutcome::Missing => Err(AdminError::NoErrorGroup(group)),
            KnowOutcome::TooMany => Err(AdminError::TooManyKnownErrors),
        }
    }

    /// Removes the mark of an error group. Errors: [`AdminError::NoKnownError`] if it has none.
    pub async fn forget_error(
        &self,
        canvas: CanvasId,
        group: ErrorGroupId,
        actor: &Actor,
    ) -> Result<(), AdminError> {
        checked(actor)?;
        let forgotten = self.store.forget_error(canvas, group, actor).await?;
        if forgotten { Ok(()) } else { Err(AdminError::NoKnownError(group)) }
    }
}
