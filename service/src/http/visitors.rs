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

/// Limits how many browsers watch pages, and how many of them with one credential.
pub(crate) struct Watchers {
    free: Arc<Semaphore>,
    shares: Tally<LimitKey>,
}

/// A place of a browser that watches a page, until it is dropped.
pub(crate) struct Watching {
    _place: OwnedSemaphorePermit,
    _share: Reservation,
}

impl Watchers {
    pub(crate) fn new(most: usize, share: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), shares: Tally::new(share) }
    }

    /// A place, if there is one.
    pub(crate) fn admit(&self, visitor: &Visitor) -> Result<Watching, Problem> {
        let words = "too many browsers watch pages of this process: reload the page now and then instead";
        let full = || Problem::new(Kind::TooManyRequests, words);
        let share = self.shares.reserve(&visitor.limit_keys, 1).map_err(|_| full())?;
        let place = Arc::clone(&self.free).try_acquire_owned().map_err(|_| full())?;
        Ok(Watching { _place: place, _share: share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(name: &str) -> Visitor {
        Visitor { limit_keys: [LimitKey::Credential(name.into())].into() }
    }

    #[test]
    fn one_credential_leaves_others_places_to_watch_from() {
        let watchers = Watchers::new(3, 2);
        let mut own: Vec<_> = (0..5).filter_map(|_| watchers.admit(&visitor("one")).ok()).collect();
        assert_eq!(own.len(), 2, "its share");
        let other = watchers.admit(&visitor("other")).ok();
        assert!(other.is_some());
        assert!(watchers.admit(&visitor("third")).is_err(), "all places are taken");
        own.pop();
        assert!(watchers.admit(&visitor("third")).is_ok(), "a place is given back");
        drop((own, other));
        assert_eq!(watchers.shares.len(), 0, "nobody is remembered");
    }
}
