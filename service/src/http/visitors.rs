//! People who look at pages: what their requests count for, and what is recorded of those who do
//! not get in.
//!
//! A person uses what programs use, so nobody gets more of it through a page than with the same key
//! through the API, and nobody without a key keeps others out. Must not know what a page shows.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::{Extensions, Method};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Api;
use super::answer::RequestId;
use super::body::announced;
use super::client::Client;
use super::credential::reason;
use super::problem::{Kind, Problem};
use super::record::Line;
use super::shares::{LimitKey, Reservation, Tally, Unverified, credential_of};
use super::slots::Slot;
use crate::access::{Principal, Unauthenticated};
use wakeq::CanvasId;
use wakeq::control::AuditOutcome;

/// The sender of a request for a page.
#[derive(Clone)]
pub(crate) struct Visitor {
    /// What the request counts for.
    limit_keys: Arc<[LimitKey]>,
}

impl Visitor {
    /// A person who is signed in, whose requests count for the credential.
    pub(crate) fn signed_in(
        api: &Api,
        principal: &Principal,
        request: &mut Request,
    ) -> Result<Self, Problem> {
        let credential = credential_of(principal);
        api.shares.count_request(&credential)?;
        Self::counted(api, LimitKey::Credential(credential), request)
    }

    /// Somebody who is not, whose requests count for the network that they come from.
    pub(crate) fn stranger(api: &Api, request: &mut Request) -> Result<Self, Problem> {
        let client = Client::of(request.extensions());
        api.shares.count_unauthenticated(client)?;
        Self::counted(api, LimitKey::Network(client.network()), request)
    }

    fn counted(api: &Api, limit_key: LimitKey, request: &mut Request) -> Result<Self, Problem> {
        let limit_keys: Arc<[LimitKey]> = [limit_key].into();
        api.shares.count_body(&limit_keys, announced(request.headers()).unwrap_or(0))?;
        if let Some(slot) = request.extensions().get::<Arc<Slot>>() {
            slot.count_for(Arc::clone(&limit_keys))?;
        }
        request.extensions_mut().insert(Unverified(Arc::clone(&limit_keys)));
        Ok(Self { limit_keys })
    }

    /// Counts an answer until it is sent.
    pub(crate) fn count(&self, api: &Api, method: &Method, answer: Response) -> Response {
        if let Some(bytes) = answer.body().size_hint().exact() {
            api.shares.charge_bytes(&self.limit_keys, bytes);
        }
        api.limits.answers.count(&self.limit_keys, method, answer)
    }

    /// Counts bytes of an answer that has no end.
    pub(crate) fn charge(&self, api: &Api, bytes: usize) {
        api.shares.charge_bytes(&self.limit_keys, bytes as u64);
    }
}

/// Records that somebody did not get in, with the reason; for admins of every canvas, since it is
/// about none.
pub(crate) fn record_refused_sign_in(api: &Api, extensions: &Extensions, refused: &Unauthenticated) {
    let Some(reason) = reason(refused) else { return };
    let line = Line {
        outcome: AuditOutcome::Refused,
        canvas: None,
        actor: None,
        credential: None,
        client: Client::of(extensions),
        action: "sign-in".into(),
        scope: None,
        reason: Some(reason),
    };
    api.audit.record_refusal(line, extensions.get().map_or("", |id: &RequestId| &id.0));
}

/// Limits how many browsers watch pages, and how many of them with one credential or on one canvas.
pub(crate) struct Watchers {
    free: Arc<Semaphore>,
    shares: Tally<LimitKey>,
    canvases: Tally<CanvasId>,
}

/// A place of a browser that watches a page, until it is dropped.
pub(crate) struct Watching {
    _place: OwnedSemaphorePermit,
    _shares: [Reservation; 2],
}

impl Watchers {
    pub(crate) fn new(most: usize, share: usize, of_canvas: usize) -> Self {
        let (shares, canvases) = (Tally::new(share), Tally::new(of_canvas));
        Self { free: Arc::new(Semaphore::new(most)), shares, canvases }
    }

    /// A place, if there is one.
    pub(crate) fn admit(&self, visitor: &Visitor, canvas: CanvasId) -> Result<Watching, Problem> {
        let words = "too many browsers watch pages of this process: reload the page now and then instead";
        let full = || Problem::new(Kind::TooManyRequests, words);
        let share = self.shares.reserve(&visitor.limit_keys, 1).map_err(|_| full())?;
        let of_canvas = self.canvases.reserve(&[canvas], 1).map_err(|_| full())?;
        let place = Arc::clone(&self.free).try_acquire_owned().map_err(|_| full())?;
        Ok(Watching { _place: place, _shares: [share, of_canvas] })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn visitor(name: &str) -> Visitor {
        Visitor { limit_keys: [LimitKey::Credential(name.into())].into() }
    }

    #[test]
    fn one_credential_leaves_others_places_to_watch_from() {
        let watchers = Watchers::new(3, 2, 3);
        let admit = |name| watchers.admit(&visitor(name), CanvasId::DEFAULT);
        let mut own: Vec<_> = (0..5).filter_map(|_| admit("one").ok()).collect();
        assert_eq!(own.len(), 2, "its share");
        let other = admit("other").ok();
        assert!(other.is_some());
        assert!(admit("third").is_err(), "all places are taken");
        own.pop();
        assert!(admit("third").is_ok(), "a place is given back");
        drop((own, other));
        assert_eq!((watchers.shares.len(), watchers.canvases.len()), (0, 0), "nobody is remembered");
    }

    #[test]
    fn a_canvas_with_many_keys_leaves_others_places_to_watch_from() {
        let watchers = Watchers::new(4, 2, 3);
        let (own, other) = (CanvasId(Uuid::from_u128(1)), CanvasId(Uuid::from_u128(2)));
        let keys: Vec<_> = (0..4).map(|key: u8| visitor(&key.to_string())).collect();
        let held: Vec<_> = keys.iter().filter_map(|key| watchers.admit(key, own).ok()).collect();
        assert_eq!(held.len(), 3, "its share");
        assert!(watchers.admit(&visitor("theirs"), other).is_ok());
    }
}
