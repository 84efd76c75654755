//! Operations in the browser: the list, one with its progress, and how one is begun.

mod new;
mod words;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, events, facts, number, pager, table};
use crate::page::time::{moment, moment_or};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::operations::wire::{OperationJson, OperationStateJson};
use crate::resources::wire::List;
pub(crate) use new::{begin, show as show_new};
use words::{brief_of, verb, which};

/// How many operations a page of the list has.
const PAGE: usize = 100;

/// All operations, the latest first.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["operations"]).query("cursor", visit.parameter("cursor")).query("limit", PAGE);
    let operations: List<OperationJson> = ask.shared().await?;
    let above = html! {
        p.quiet {
            "An operation does one thing to all events that match a filter, or to those that were selected. It "
            "is listed until 14 days "
            "after its end."
        }
        @if may_begin(&visit) {
            p.actions { a.button href=(visit.link(&["operations", "new"])) { "New operation" } }
        }
    };
    Ok(View::new("Operations").above(above).live(listed(&visit, &operations)))
}

/// A filter may ask for what is in values, so reading is part of it.
fn may_begin(visit: &Visit) -> bool {
    visit.may(Scope::Operate) && visit.may(Scope::Read)
}

fn listed(visit: &Visit, operations: &List<OperationJson>) -> Markup {
    if operations.items.is_empty() {
        let next = html! {
            "Filter the " a href=(visit.link(&["events"])) { "events" }
            ", and cancel, hurry or re-tag all that match."
        };
        return empty("No operation was begun here lately.", next);
    }
    let head = ["Operation", "Events", "State", ">Changed", ">Left alone", "By", "Begun"];
    html! {
        (table("Operations", &head, html! {
            @for operation in &operations.items {
                tr {
                    @let to = visit.link(&["operations", &operation.id.to_string()]);
                    td { a href=(to) { (verb(operation.kind)) } }
                    td.words { (brief_of(operation)) }
                    td { (state_badge(operation.state)) }
                    td.number { (number(operation.changed)) }
                    td.number { (number(operation.skipped)) }
                    td { (operation.author) }
                    td { (moment(operation.started_at)) }
                }
            }
        }))
        (pager(visit, operations.next_cursor.as_deref()))
    }
}

fn state_badge(state: OperationStateJson) -> Markup {
    match state {
        OperationStateJson::Open => badge(Tone::Busy, "open"),
        OperationStateJson::Done => badge(Tone::Calm, "done"),
        OperationStateJson::Cancelled => badge(Tone::Waiting, "cancelled"),
        OperationStateJson::Failed => badge(Tone::Alarm, "failed"),
    }
}

/// One operation, and how far it has come.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let id = path.get("operation");
    let operation: OperationJson = visit.ask(&["operations", id]).shared().await?;
    let is_open = operation.state == OperationStateJson::Open;
    let action = visit.link(&["operations", id, "cancel"]);
    let above = html! {
        @if is_open && visit.may(Scope::Operate) {
            p.actions {
                (form::button(&visit, &action, "Stop the operation"))
                span.quiet { "What it has done stays." }
            }
        }
    };
    let live = html! {
        (progress(&operation))
        h2 { "Which events" }
        (which(&operation))
        h2 { "About it" }
        (about(&operation))
    };
    Ok(View::new(format!("Operation: {}", verb(operation.kind))).above(above).live(live))
}

/// Counts, with a bar if it is known how many there are.
fn progress(operation: &OperationJson) -> Markup {
    let done = operation.changed + operation.skipped;
    let expected =
        (!operation.preview_more).then_some(operation.preview_count.max(done)).filter(|most| *most > 0);
    html! {
        p { (state_badge(operation.state)) " " (meaning(operation.state)) }
        @if let Some(error) = &operation.error { p.trouble { (error) } }
        @if let Some(most) = expected.filter(|_| operation.state == OperationStateJson::Open) {
            progress value=(done) max=(most) aria-label="How far it has come" {
                (number(done)) " of " (number(most))
            }
        }
        (facts(&[
            ("Matched when it began", Some(html! {
                @if operation.preview_more { "at least " }
                (events(operation.preview_count))
            })),
            ("Looked at", Some(html! { (events(operation.looked_at)) })),
            ("Matched", Some(html! { (events(operation.matched)) })),
            ("Changed", Some(html! { strong { (events(operation.changed)) } })),
            ("Left as they were", Some(html! {
                (events(operation.skipped))
                @if operation.skipped > 0 {
                    span.quiet {
                        " that run, had ended or changed in the meantime, or would have too many tags. "
                        "Begin another operation with the same filter to try them again."
                    }
                }
            })),
        ]))
    }
}

fn meaning(state: OperationStateJson) -> &'static str {
    match state {
        OperationStateJson::Open => "It is being carried on, whatever becomes of this process.",
        OperationStateJson::Done => "It has looked at every event.",
        OperationStateJson::Cancelled => "It was stopped. What it had done stays.",
        OperationStateJson::Failed => "It can't be carried on by this release.",
    }
}

fn about(operation: &OperationJson) -> Markup {
    let tags = |tags: &[String]| (!tags.is_empty()).then(|| html! { (tags.join(", ")) });
    html! {
        (facts(&[
            ("Begun by", Some(html! { (operation.author) })),
            ("Begun", Some(moment(operation.started_at))),
            ("Came further", Some(moment(operation.updated_at))),
            ("Ended", Some(moment_or(operation.ended_at, "not yet"))),
            ("Only what came before", Some(moment(operation.before))),
            ("Tags added", tags(&operation.add_tags)),
            ("Tags removed", tags(&operation.remove_tags)),
        ]))
    }
}

/// Stops it.
pub(crate) async fn cancel(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("operation");
    visit.ask(&["operations", id]).delete().await?;
    Ok(Done::new(visit.link(&["operations", id]), "The operation changes no further events."))
}
