//! The live part of a page, again and again, as server-sent events: only when it has changed, and
//! only to a person who may still see it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response, Sse};
use futures_util::stream::unfold;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::admission::admitted;
use super::alone::Alone;
use super::state::Page;
use super::view::View;
use super::visit::Visit;
use super::{gate, memo};
use crate::http::connection::Endless;
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};
use crate::http::visitors::{Visitor, Watching};

const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// How often something is sent if nothing changes, in ticks: proxies end what is silent.
const SILENCE: u32 = 7;

/// Watches the page of a request.
pub(super) fn watch(page: Page, visitor: &Visitor, request: Request, next: Next) -> Response {
    let canvas = request.extensions().get().map(Visit::canvas).unwrap_or_default();
    let place = match page.watchers.admit(visitor, canvas) {
        Ok(place) => place,
        Err(problem) => return problem.into_response(),
    };
    let visitor = visitor.clone();
    let mut ticks = interval(memo::FRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut parts, _) = request.into_parts();
    let alone = Arc::new(page.memo.alone(canvas));
    parts.extensions.insert(Arc::clone(&alone));
    let watcher = Watcher { page, visitor, parts, next, ticks, alone, shown: None };
    let events = unfold((watcher, place), |(watcher, place): (Watcher, Watching)| async move {
        let (event, watcher) = watcher.next().await?;
        Some((Ok::<_, Infallible>(event), (watcher, place)))
    });
    let mut response = Sse::new(events).into_response();
    response.headers_mut().insert(NO_BUFFER, HeaderValue::from_static("no"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response.extensions_mut().insert(Endless);
    response
}

/// A browser that looks at a page.
struct Watcher {
    page: Page,
    visitor: Visitor,
    parts: Parts,
    next: Next,
    ticks: Interval,
    alone: Arc<Alone>,
    /// What was sent last.
    shown: Option<String>,
}

/// What it sees.
enum Sight {
    Live(String),
    /// What it saw before, because it would cost too much to look, or something is unavailable.
    Before,
    /// Nothing any more.
    Nothing,
}

impl Watcher {
    /// The next event; `None` at the end. The browser then asks again, and is told why.
    async fn next(mut self) -> Option<(Event, Self)> {
        for _ in 0..SILENCE {
            tokio::select! {
                () = self.page.stop.cancelled() => return None,
                _ = self.ticks.tick() => {}
            }
            let live = match self.look().await {
                Sight::Live(live) => live,
                Sight::Before => continue,
                Sight::Nothing => return None,
            };
            if self.shown.as_ref() != Some(&live) {
                self.visitor.charge(&self.page.api, live.len());
                let event = Event::default().event("live").data(&live);
                self.shown = Some(live);
                return Some((event, self));
            }
        }
        Some((Event::default().comment("still here"), self))
    }

    /// The live part as the person may see it now, if it is time to look.
    async fn look(&self) -> Sight {
        self.alone.begin();
        let Some(mut response) = self.answer().await else { return Sight::Nothing };
        let is_unavailable = |problem: &Problem| problem.kind == Kind::Unavailable;
        // Also a page that was made without what was postponed.
        if self.alone.is_postponed() || response.extensions().get::<Problem>().is_some_and(is_unavailable) {
            return Sight::Before;
        }
        let view = response.extensions_mut().remove::<View>();
        match view.and_then(|view| view.live) {
            // A stream has lines of its own, which what tenants write must not end.
            Some(live) => Sight::Live(live.into_string().replace("\r\n", "\n").replace('\r', "\n")),
            None => Sight::Nothing,
        }
    }

    /// What the page answers now: the session may have ended since the last time, and what it
    /// allows may be less.
    async fn answer(&self) -> Option<Response> {
        let root = Root::of(&self.parts.extensions, &self.parts.uri);
        let (sign_in, principal) = gate::person(&self.page, &root, &self.parts.headers).await.ok()?;
        let request = Request::from_parts(self.parts.clone(), Body::empty());
        let (_, request) = admitted(&self.page, request, root, &sign_in, principal).await.ok()?;
        Some(self.next.clone().run(request).await)
    }
}
