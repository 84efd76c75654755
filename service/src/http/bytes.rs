//! Limits on the bytes of requests and answers that this process holds at once. A canvas may hold
//! up to as much as is left for the others, and so may a credential across canvases.
//!
//! Only counts and slices bytes; does not parse requests, and never waits for capacity.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::problem::{Kind, Problem};
use super::shares::LimitKey;

/// Answers up to this size in bytes are not counted: the connection's own buffers hold them.
const SMALL: u64 = 32 * 1024;
/// How many times the bytes of a network count against what is left. So a network has a quarter of
/// all bytes at most, and half of what webhooks have: one address can't stop those of all tenants.
const NETWORK_WEIGHT: usize = 3;
/// How many bytes of an answer are passed to its connection at a time; the connection copies them.
const SLICE: usize = 16 * 1024;

/// A limit on bytes, and how many of them each holder has.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    of: HashMap<LimitKey, usize>,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, counts: Mutex::default() })
    }

    /// A reservation without any bytes yet.
    pub(super) fn begin(self: &Arc<Self>, limit_keys: &Arc<[LimitKey]>) -> ByteReservation {
        ByteReservation { budget: Arc::clone(self), limit_keys: Arc::clone(limit_keys), bytes: 0 }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes held by one request or answer, until it is dropped.
#[derive(Debug)]
pub(super) struct ByteReservation {
    budget: Arc<Budget>,
    /// The keys that the bytes are counted for.
    limit_keys: Arc<[LimitKey]>,
    bytes: usize,
}

impl ByteReservation {
    /// Reserves more bytes, provided that each key then has at most as much as is left; otherwise
    /// returns the first key that would exceed this. So one key gets up to a half, two get a third
    /// each, and something is always left for another one. A network gets less.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), LimitKey> {
        let budget = Arc::clone(&self.budget);
        let mut counts = budget.counts();
        let left = budget.most.saturating_sub(counts.all);
        let has_more = |key: &&LimitKey| {
            let own = counts.of.get(key).copied().unwrap_or(0);
            let weight = if matches!(key, LimitKey::Network(_)) { NETWORK_WEIGHT } else { 1 };
            own.saturating_add(bytes).saturating_mul(weight) > left.saturating_sub(bytes)
        };
        if let Some(key) = self.limit_keys.iter().find(has_more) {
            return Err(key.clone());
        }
        self.count(&mut counts, bytes);
        Ok(())
    }

    /// Reserves more bytes, regardless of the limit.
    fn add_anyway(&mut self, bytes: usize) {
        let budget = Arc::clone(&self.budget);
        self.count(&mut budget.counts(), bytes);
    }
}

impl ByteReservation {
    fn count(&mut self, counts: &mut Counts, bytes: usize) {
        counts.all += bytes;
        for key in self.limit_keys.iter() {
            *counts.of.entry(key.clone()).or_default() += bytes;
        }
        self.bytes += bytes;
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        let mut counts = self.budget.counts();
        counts.all -= self.bytes;
        for key in self.limit_keys.iter() {
            if let Some(own) = counts.of.get_mut(key) {
                *own -= self.bytes;
                if *own == 0 {
                    counts.of.remove(key);
                }
            }
        }
    }
}

/// Counts answers that are being sent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Answers {
    budget: Arc<Budget>,
    /// How long the caller may take to receive an answer.
    within: Duration,
}

impl Answers {
    pub(crate) fn new(most: usize, within: Duration) -> Self {
        Self { budget: Budget::new(most), within }
    }

    /// Counts an answer until it is sent. If there is no room for it, it is refused, unless the
    /// request changed something: the outcome of a change has to be reported.
    pub(super) fn count(
        &self,
        limit_keys: &Arc<[LimitKey]>,
        method: &Method,
        response: Response,
    ) -> Response {
        let Some(bytes) = large(&response) else { return response };
        let mut reservation = self.budget.begin(limit_keys);
        if method.is_safe() {
            if let Err(key) = reservation.add(bytes) {
                let words = format!(
                    "this process can't hold more unread answers for {key}: read them first, then \
                     try again, or ask for fewer at a time"
                );
                return Problem::new(Kind::TooManyRequests, words).into_response();
            }
        } else {
            reservation.add_anyway(bytes);
        }
        response.map(|body| Body::new(SlicedBody::new(body, self.within, Some(reservation))))
    }
}

/// Sends an answer that is in memory anyway, such as a static page, in slices without counting it.
pub(super) fn sliced(response: Response, within: Duration) -> Response {
    if large(&response).is_none() {
        return response;
    }
    response.map(|body| Body::new(SlicedBody::new(body, within, None)))
}

fn large(response: &Response) -> Option<usize> {
    let bytes = response.body().size_hint().exact().filter(|bytes| *bytes > SMALL)?;
    usize::try_from(bytes).ok()
}

/// A body in small slices, so that its connection never copies all of it. The caller has to receive
/// the whole body within the time limit: otherwise the connection is closed, even if the caller is
/// still reading.
struct SlicedBody {
    body: Body,
    rest: Bytes,
    until: Instant,
    _reservation: Option<ByteReservation>,
}

impl SlicedBody {
    fn new(body: Body, within: Duration, reservation: Option<ByteReservation>) -> Self {
        Self { body, rest: Bytes::new(), until: Instant::now() + within, _reservation: reservation }
    }
}

impl HttpBody for SlicedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        if Instant::now() > this.until {
            return Poll::Ready(Some(Err("the caller took too long to read the answer".into())));
        }
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
            }
        }
        let slice = this.rest.split_to(this.rest.len().min(SLICE));
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(exact) => SizeHint::with_exact(exact + rest),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use http_body_util::BodyExt;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    /// A canvas and a credential.
    fn limit_keys(canvas: u128, credential: &str) -> Arc<[LimitKey]> {
        let canvas = LimitKey::Canvas(wakeq::CanvasId(uuid::Uuid::from_u128(canvas)));
        [LimitKey::Credential(credential.into()), canvas].into()
    }

    fn take(budget: &Arc<Budget>, limit_keys: &Arc<[LimitKey]>, bytes: usize) -> Option<ByteReservation> {
        let mut reservation = budget.begin(limit_keys);
        reservation.add(bytes).is_ok().then_some(reservation)
    }

    #[test]
    fn a_canvas_holds_as_much_as_it_leaves_and_another_finds_room() {
        let budget = Budget::new(120);
        // Each time with another key.
        let mut at = 0;
        let mut take = |canvas, bytes| {
            at += 1;
            take(&budget, &limit_keys(canvas, &at.to_string()), bytes)
        };
        let mut one: Vec<ByteReservation> = std::iter::from_fn(|| take(1, 10)).collect();
        assert_eq!(one.len(), 6, "half of it");
        let other: Vec<ByteReservation> = std::iter::from_fn(|| take(2, 10)).collect();
        assert_eq!(other.len(), 3, "half of what is left");
        assert!(take(1, 1).is_none());
        assert!(take(3, 10).is_some(), "and a third one, too");
        one.truncate(2);
        assert!(take(2, 10).is_some(), "what is given back is there for all");
        drop((one, other));
        let counts = budget.counts();
        assert_eq!((counts.all, counts.of.len()), (0, 0));
    }

    #[test]
    fn a_credential_holds_as_much_as_it_leaves_on_whatever_canvases() {
        let budget = Budget::new(120);
        let mut at = 0;
        let of_one = std::iter::from_fn(|| {
            at += 1;
            take(&budget, &limit_keys(at, "one"), 10)
        });
        let of_one: Vec<ByteReservation> = of_one.collect();
        assert_eq!(of_one.len(), 6, "half of it, on six canvases");
        let mut refused = budget.begin(&limit_keys(1, "one"));
        assert_eq!(refused.add(10), Err(LimitKey::Credential("one".into())));
        assert!(take(&budget, &limit_keys(1, "two"), 10).is_some(), "another one on the same canvas");
        drop((of_one, refused));
        assert_eq!(budget.counts().of.len(), 0);
    }

    #[test]
    fn a_network_leaves_webhooks_of_others_room() {
        let budget = Budget::new(120);
        let take_all = |host: u8| {
            let network = LimitKey::Network(std::net::IpAddr::from([10, 0, 0, host]));
            let keys: Arc<[LimitKey]> = [LimitKey::Webhooks, network].into();
            std::iter::from_fn(|| take(&budget, &keys, 10)).collect::<Vec<ByteReservation>>()
        };
        let (one, other) = (take_all(1), take_all(2));
        assert_eq!((one.len(), other.len()), (3, 2), "a quarter, and a quarter of what is left");
        assert!(take(&budget, &limit_keys(1, "one"), 30).is_some(), "a canvas has its share");
        drop((one, other));
        assert_eq!(budget.counts().of.len(), 0);
        let network = LimitKey::Network(std::net::IpAddr::from([10, 0, 0, 1]));
        let network: Arc<[LimitKey]> = [network].into();
        assert!(take(&Budget::new(4), &network, 1).is_some(), "the largest body has room");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_counted_until_it_is_sent() {
        let answers = Answers::new(400_000, WITHIN);
        let page = || vec![b'x'; 150_000].into_response();
        let (one, other) = (limit_keys(1, "one"), limit_keys(2, "other"));
        let get = |limit_keys| answers.count(limit_keys, &Method::GET, page());
        let unread = get(&one);
        assert_eq!(unread.status(), StatusCode::OK);
        assert_eq!(get(&one).status(), StatusCode::TOO_MANY_REQUESTS);
        let changed = answers.count(&one, &Method::POST, page());
        assert_eq!(changed.status(), StatusCode::OK, "what was done is told");
        assert_eq!(answers.count(&one, &Method::GET, "small".into_response()).status(), StatusCode::OK);
        drop(changed);
        let other = answers.count(&other, &Method::GET, vec![b'x'; 100_000].into_response());
        assert_eq!(other.status(), StatusCode::OK, "another canvas has its own share");
        assert_eq!(unread.into_body().collect().await.unwrap().to_bytes().len(), 150_000);
        drop(other);
        assert_eq!(get(&one).status(), StatusCode::OK);
        assert_eq!(answers.budget.counts().all, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_goes_out_in_pieces_and_has_its_time_as_a_whole() {
        let response = Answers::new(400_000, WITHIN).count(
            &limit_keys(1, "one"),
            &Method::GET,
            vec![b'x'; 50_000].into_response(),
        );
        assert_eq!(response.body().size_hint().exact(), Some(50_000), "its length is known");
        let mut body = response.into_body();
        for expected in [SLICE, SLICE] {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece.len(), expected);
            tokio::time::sleep(Duration::from_secs(15)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(body.frame().await.unwrap().is_err());
    }
}
