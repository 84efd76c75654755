//! The statements of runs whose events have limits, batched over all that request them at the same
//! time, as those of all other runs are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{CanvasId, Claim, EventId, HeldLimit, Notification};
use crate::store::{
    BATCH_MAX, ClaimLimits, ClaimedEvent, Coalescer, HandedOn, IN_FLIGHT, LimitedClaim, LimitedClaims, Store,
    StoreError, WokenEvent,
};

/// How long the end of an event lingers for whose places others wait. Those that were handed on
/// together and end together also hand on together: one statement for all of them.
pub(super) const HAND_ON_LINGER: Duration = Duration::from_millis(1);

/// What became of a claim through limits. Of several that were made together, the first also says
/// which limits have room for others, and whether running events may have been cancelled.
#[derive(Clone, Debug)]
pub(super) struct LimitedAnswer {
    pub(super) claim: LimitedClaim,
    pub(super) room: Vec<HeldLimit>,
    pub(super) cancels: bool,
}

/// Limits that may have room, of a run on a canvas.
#[derive(Clone, Debug)]
pub(super) struct FreedLimits {
    pub(super) canvas: CanvasId,
    pub(super) held: Box<[HeldLimit]>,
    /// The event of the run, if it had places that it may have left.
    pub(super) ended: Option<EventId>,
}

/// Events that have room at limits.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitRoom {
    /// Those that this worker can run: of its handlers, and of canvases for which it ran them.
    pub(super) here: Vec<Notification>,
    /// The others, whose handlers it may not have.
    pub(super) others: Vec<WokenEvent>,
}

/// An event that has completed under limits.
#[derive(Clone, Debug)]
pub(super) struct LimitedEnd {
    pub(super) claim: Claim,
    pub(super) canvas: CanvasId,
    pub(super) held: Box<[HeldLimit]>,
    /// Whether another event can start here at once.
    pub(super) takes_next: bool,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct LimitedEnded {
    /// If not, its claim may stand.
    pub(super) is_ended: bool,
    /// An event that was claimed in its stead, and when that claim was sent at the earliest.
    pub(super) next: Option<(Box<ClaimedEvent>, Instant)>,
    /// What else has room. Of several that end together, the first gets it.
    pub(super) room: LimitRoom,
}

impl LimitRoom {
    /// The events that were woken at these limits after runs on these canvases.
    fn of(woken: Vec<WokenEvent>, limits: &[HeldLimit], canvases: &[CanvasId]) -> Self {
        let is_of_handlers = limits.iter().all(|limit| limit.name.starts_with("handler:"));
        let is_here = |next: &WokenEvent| canvases.contains(&next.notification.canvas);
        let (here, others): (Vec<_>, Vec<_>) =
            woken.into_iter().partition(|next| is_of_handlers && is_here(next));
        Self { here: here.into_iter().map(|next| next.notification).collect(), others }
    }
}

/// Wakes what has room at the limits of events that have ended, for the first one of those that
/// ask.
pub(super) async fn room_in_limits(
    store: &Store,
    freed: &[FreedLimits],
) -> Result<Vec<LimitRoom>, StoreError> {
    let limits: Vec<HeldLimit> = freed.iter().flat_map(|freed| freed.held.iter().cloned()).collect();
    let ended: Vec<EventId> = freed.iter().filter_map(|freed| freed.ended).collect();
    let canvases: Vec<CanvasId> = freed.iter().map(|freed| freed.canvas).collect();
    let woken = store.wake_events_after(&limits, &ended).await?;
    let mut rooms = vec![LimitRoom::default(); freed.len()];
    if let Some(first) = rooms.first_mut() {
        *first = LimitRoom::of(woken, &limits, &canvases);
    }
    Ok(rooms)
}

/// Claims through limits: of the handlers that are registered, and of those that are asked for.
/// Gathered, since a claim costs less than the statement: those that were woken together ask so.
pub(super) fn limited_claims(
    store: &Store,
    every: ClaimLimits,
) -> Coalescer<(Notification, Option<String>), LimitedAnswer> {
    let every = Arc::new(every);
    store.gathered(move |store, asked: Vec<(Notification, Option<String>)>| {
        let every = Arc::clone(&every);
        async move {
            let (notifications, keys): (Vec<Notification>, Vec<Option<String>>) = asked.into_iter().unzip();
            let mut limits = ClaimLimits::clone(&every);
            limits.canvas_handlers.extend(keys.into_iter().flatten());
            limits.canvas_handlers.sort_unstable();
            limits.canvas_handlers.dedup();
            let LimitedClaims { claims, mut room, mut cancels } =
                store.claim_limited(&notifications, &limits).await?;
            let answer = |claim| {
                let (room, cancels) = (std::mem::take(&mut room), std::mem::take(&mut cancels));
                LimitedAnswer { claim, room, cancels }
            };
            Ok(claims.into_iter().map(answer).collect())
        }
    })
}

/// Ends of events that wait this long for others, of which there are at most `at_once`. What they
/// hand on here are events of these handlers.
pub(super) fn limited_ends(
    store: &Store,
    at_once: usize,
    linger: Duration,
    limits: ClaimLimits,
) -> Coalescer<LimitedEnd, LimitedEnded> {
    let (store, limits) = (store.clone(), Arc::new(limits));
    Coalescer::lingering(at_once.min(BATCH_MAX), linger, IN_FLIGHT, move |ends: Vec<LimitedEnd>| {
        let (store, limits) = (store.clone(), Arc::clone(&limits));
        async move { end_at_limits(&store, &ends, &limits).await }
    })
}

/// Each of them that has ended gets one of the events that have places then.
async fn end_at_limits(
    store: &Store,
    ends: &[LimitedEnd],
    limits: &ClaimLimits,
) -> Result<Vec<LimitedEnded>, StoreError> {
    let claims: Vec<Claim> = ends.iter().map(|end| end.claim).collect();
    let freed: Vec<HeldLimit> = ends.iter().flat_map(|end| end.held.iter().cloned()).collect();
    let canvases: Vec<CanvasId> = ends.iter().map(|end| end.canvas).collect();
    let takes_next = ends.iter().all(|end| end.takes_next);
    let sent = Instant::now();
    let HandedOn { ended, claimed, woken } =
        store.hand_on(&claims, &freed, takes_next.then_some(limits)).await?;
    let (mut room, mut claimed) = (LimitRoom::of(woken, &freed, &canvases), VecDeque::from(claimed));
    let answer = |is_ended: bool| LimitedEnded {
        is_ended,
        next: is_ended.then(|| claimed.pop_front()).flatten().map(|event| (Box::new(event), sent)),
        room: std::mem::take(&mut room),
    };
    Ok(ended.into_iter().map(answer).collect())
}
