//! The sessions of the person who looks: where else somebody is signed in with the same key, and
//! the end of that.

use axum::extract::State;
use axum::http::HeaderMap;
use maud::{Markup, html};
use uuid::Uuid;

use super::form;
use super::gate::person;
use super::parts::{Tone, badge, empty, table};
use super::state::Page;
use super::time::moment;
use super::view::{Done, View};
use super::visit::{PathParts, Visit};
use crate::access::{OpenSession, SignIn, Unauthenticated};
use crate::http::mounted::Root;
use crate::http::problem::{Kind, Problem};

/// All of them, those that were used last first.
pub(super) async fn list(
    State(page): State<Page>,
    visit: Visit,
    root: Root,
    headers: HeaderMap,
) -> Result<View, Problem> {
    let view = View::new("Sessions");
    let Some(sessions) = page.api.access.sessions_of(&signed_in(&page, &root, &headers).await?).await? else {
        let next = html! { "Whoever has signed you in to it has the list of your sessions." };
        return Ok(view.above(empty("A proxy lets you through, and there is no session here.", next)));
    };
    let above = html! {
        p.quiet {
            "Where somebody is signed in to these pages as you. A session ends after twelve hours, an hour after \
             the last page was opened in it, or when it is ended here, which counts everywhere within a minute. \
             When the key is revoked, all of its sessions end."
        }
        @if sessions.iter().any(|session| !session.is_own) {
            p.actions { (form::button(&visit, &visit.at_root("/sessions/end-others"), "End all others")) }
        }
    };
    Ok(view.above(above).below(listed(&visit, &sessions)))
}

async fn signed_in(page: &Page, root: &Root, headers: &HeaderMap) -> Result<SignIn, Unauthenticated> {
    person(page, root, headers).await.map(|(sign_in, _)| sign_in)
}

fn listed(visit: &Visit, sessions: &[OpenSession]) -> Markup {
    let head = ["Used last", "Opened", "Ends", "From the address", "With the browser", "What to do"];
    table("Sessions", &head, html! { @for session in sessions { (row(visit, session)) } })
}

fn row(visit: &Visit, session: &OpenSession) -> Markup {
    let end = visit.at_root(&format!("/sessions/{}/end", session.id));
    html! {
        tr {
            td { (moment(session.seen_at)) }
            td { (moment(session.opened_at)) }
            td { (moment(session.ends_at)) }
            td { (session.address) }
            td.words { @if session.browser.is_empty() { "–" } @else { (session.browser) } }
            td {
                @if session.is_own { (badge(Tone::Calm, "this one")) }
                @else { (form::button(visit, &end, "End it")) }
            }
        }
    }
}

/// Ends one of them.
pub(super) async fn end(
    State(page): State<Page>,
    visit: Visit,
    path: PathParts,
    root: Root,
    headers: HeaderMap,
) -> Result<Done, Problem> {
    let gone = || Problem::new(Kind::NotFound, "you have no such session, or it has ended already");
    let id: Uuid = path.get("session").parse().map_err(|_| gone())?;
    let sign_in = signed_in(&page, &root, &headers).await?;
    if !page.api.access.end_session(&sign_in, id).await? {
        return Err(gone());
    }
    Ok(Done::new(visit.at_root("/sessions"), "The session has ended."))
}

/// Ends all of them but the one that asks.
pub(super) async fn end_others(
    State(page): State<Page>,
    visit: Visit,
    root: Root,
    headers: HeaderMap,
) -> Result<Done, Problem> {
    let sign_in = signed_in(&page, &root, &headers).await?;
    let ended = page.api.access.end_other_sessions(&sign_in).await?;
    let said = match ended {
        1 => "1 other session has ended.".to_owned(),
        ended => format!("{ended} other sessions have ended."),
    };
    Ok(Done::new(visit.at_root("/sessions"), said))
}
