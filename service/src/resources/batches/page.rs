//! Batches in the browser: the list, and one with how its members have ended.

use axum::http::Method;
use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, copied, empty, events, facts, number, pager, table, tile};
use crate::page::time::{moment, moment_or};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::batches::wire::{BatchCountsJson, BatchEndJson, BatchJson, BatchStateJson};
use crate::resources::events::page::{event_link, handler_link};
use crate::resources::wire::List;

/// How many batches a page of the list has.
const PAGE: usize = 100;

/// All batches, by name.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["batches"]).query("cursor", visit.parameter("cursor")).query("limit", PAGE);
    let batches: List<BatchJson> = ask.shared().await?;
    let about = html! {
        p.quiet {
            "When a batch is closed and its last member has ended, its event is emitted, once. "
            "Batches that are over are listed for 7 days."
        }
    };
    Ok(View::new("Batches").above(about).live(listed(&visit, &batches)))
}

fn listed(visit: &Visit, batches: &List<BatchJson>) -> Markup {
    if batches.items.is_empty() {
        let next = html! {
            "A program opens one with " code { "POST …/batches/{batch}" }
            ", and emits events with the name of the batch."
        };
        return empty("There are no batches.", next);
    }
    let head = ["Batch", "State", "At its end", "Opened", "Closed", "Over", ">Members"];
    html! {
        (table("Batches", &head, html! {
            @for batch in &batches.items {
                tr {
                    td { a href=(visit.link(&["batches", &batch.name])) { (batch.name) } }
                    td { (state_badge(batch.state)) }
                    td { (end(visit, &batch.on_end)) }
                    td { (moment(batch.opened_at)) }
                    td { (moment_or(batch.closed_at, "–")) }
                    td { (moment_or(batch.over_at, "–")) }
                    td.number { (batch.counts.map_or("–".to_owned(), |counts| number(counts.total))) }
                }
            }
        }))
        (pager(visit, batches.next_cursor.as_deref()))
    }
}

/// The handler of its event.
fn end(visit: &Visit, end: &BatchEndJson) -> Markup {
    handler_link(visit, &end.module, &end.name, Some(&end.modifier))
}

fn state_badge(state: BatchStateJson) -> Markup {
    let tone = match state {
        BatchStateJson::Open => Tone::Busy,
        BatchStateJson::Closed => Tone::Waiting,
        BatchStateJson::Ended => Tone::Calm,
        BatchStateJson::Cancelled => Tone::Alarm,
    };
    badge(tone, state.as_str())
}

/// One batch.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let batch: BatchJson = visit.ask(&["batches", path.get("batch")]).shared().await?;
    let live = html! {
        p { (state_badge(batch.state)) " " (meaning(batch.state)) }
        @if let Some(counts) = &batch.counts { (members(counts, batch.left)) }
        (listed_members(&visit, &batch))
        h2 { "About it" }
        (about(&visit, &batch))
    };
    Ok(View::new(format!("Batch {}", batch.name)).above(actions(&visit, &batch)).live(live))
}

fn meaning(state: BatchStateJson) -> &'static str {
    match state {
        BatchStateJson::Open => "Events can be emitted into it, until it is closed.",
        BatchStateJson::Closed => "It ends when the last of its members has.",
        BatchStateJson::Ended => "Its event was emitted.",
        BatchStateJson::Cancelled => "It was given up: its event is never emitted.",
    }
}

fn actions(visit: &Visit, batch: &BatchJson) -> Markup {
    let (is_open, is_closed) = (batch.state == BatchStateJson::Open, batch.state == BatchStateJson::Closed);
    html! {
        p.actions {
            @if is_open && visit.may(Scope::Emit) {
                a.button href=(visit.link(&["batches", &batch.name, "close"])) { "Close it…" }
            }
            @if (is_open || is_closed) && visit.may(Scope::Operate) {
                a.button href=(visit.link(&["batches", &batch.name, "give-up"])) { "Give it up…" }
            }
        }
    }
}

/// How its members have ended, and how many are left.
fn members(counts: &BatchCountsJson, left: Option<u64>) -> Markup {
    let shown = |count: u64| number(count);
    html! {
        div.tiles {
            @if let Some(left) = left { (tile("left", &shown(left), Tone::Busy, None)) }
            (tile("completed", &shown(counts.completed), Tone::Calm, None))
            (tile("died", &shown(counts.dead), if counts.dead > 0 { Tone::Alarm } else { Tone::Calm }, None))
            (tile("cancelled or purged", &shown(counts.cancelled), Tone::Waiting, None))
        }
        p.quiet { (events(counts.total)) " of it have ended." }
    }
}

/// The ways to its members, one by one.
fn listed_members(visit: &Visit, batch: &BatchJson) -> Markup {
    let query = [("batch", batch.name.as_str())];
    html! {
        p {
            a href=(visit.link_with(&["events"], &query)) { "Its members that are left" }
            ", and "
            a href=(visit.link_with(&["dead-events", "list"], &query)) { "those that died" }
        }
    }
}

fn about(visit: &Visit, batch: &BatchJson) -> Markup {
    let event = (batch.state == BatchStateJson::Ended).then(|| event_link(visit, batch.on_end.id));
    html! {
        (facts(&[
            ("Name", Some(copied(&batch.name))),
            ("Handler of its event", Some(end(visit, &batch.on_end))),
            ("Its event", event),
            ("Opened", Some(moment(batch.opened_at))),
            ("Closed", Some(moment_or(batch.closed_at, "not yet"))),
            ("Over", Some(moment_or(batch.over_at, "not yet"))),
        ]))
    }
}

/// Asks before it is closed, since it can't be opened again.
pub(crate) async fn ask_close(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs(Scope::Emit)?;
    let batch = fresh(&visit, &path).await?;
    let question = format!("Close this batch with {} left? No others come, except from these.", left(&batch));
    Ok(asking(&visit, &batch, "close", "Close batch", &question, "Close it"))
}

/// Closes it.
pub(crate) async fn close(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let name = path.get("batch");
    visit.ask(&["batches", name, "close"]).order(Method::POST).await?;
    Ok(Done::new(visit.link(&["batches", name]), "The batch is closed."))
}

/// Asks before it is given up.
pub(crate) async fn ask_give_up(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let batch = fresh(&visit, &path).await?;
    let question = format!(
        "Give this batch up with {} left? Its event is never emitted. The members stay as they are.",
        left(&batch)
    );
    Ok(asking(&visit, &batch, "give-up", "Give up batch", &question, "Give it up"))
}

/// Gives it up.
pub(crate) async fn give_up(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let name = path.get("batch");
    visit.ask(&["batches", name]).delete().await?;
    Ok(Done::new(visit.link(&["batches", name]), "The batch was given up."))
}

async fn fresh(visit: &Visit, path: &PathParts) -> Result<BatchJson, Problem> {
    visit.ask(&["batches", path.get("batch")]).get().await
}

/// How many members are left, in words.
fn left(batch: &BatchJson) -> String {
    match batch.left {
        Some(1) => "1 member".to_owned(),
        Some(left) => format!("{} members", number(left)),
        None => "some members".to_owned(),
    }
}

fn asking(visit: &Visit, batch: &BatchJson, what: &str, title: &str, question: &str, yes: &str) -> View {
    let action = visit.link(&["batches", &batch.name, what]);
    let back = visit.link(&["batches", &batch.name]);
    let confirm = form::confirm(visit, &action, question, yes, &back, html! {});
    View::new(format!("{title} {}", batch.name)).above(confirm)
}
