//! The first page of somebody whose rights are for some handlers only, or do not include reading:
//! these handlers with their counts, and what may be done with each.

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, empty, number, pager, table};
use crate::page::time::moment_or;
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::handlers::wire::{Handler, RuleKind};
use crate::resources::wire::List;

/// How many handlers a page lists.
const LISTED: usize = 100;

/// What is done with a handler, and its word. Blocking takes an admin of the whole canvas.
const RIGHTS: [(Scope, &str); 3] = [(Scope::Read, "see"), (Scope::Emit, "emit"), (Scope::Operate, "operate")];

/// The handlers that the person has rights for.
pub(super) async fn show(visit: &Visit) -> Result<View, Problem> {
    let has_some = RIGHTS.iter().any(|(scope, _)| !visit.handlers_with(*scope).is_empty());
    let view = View::new(if has_some { "Your handlers" } else { "Overview" }).above(about(visit, has_some));
    if !visit.may_on_some(Scope::Read) {
        return Ok(view.below(unread(visit)));
    }
    let ask = visit.ask(&["handlers"]).query("limit", LISTED).query("cursor", visit.parameter("cursor"));
    let handlers: List<Handler> = ask.shared().await?;
    Ok(view.live(listed(visit, &handlers)).below(unread(visit)))
}

fn about(visit: &Visit, has_some: bool) -> Markup {
    let modules = visit.handlers_with(Scope::Read);
    let modules = modules.iter().filter(|(_, name)| name.is_none()).map(|(module, _)| module);
    html! {
        @if has_some {
            p {
                "You have rights for some handlers of this canvas, which are shown here. Pages about more \
                 than these handlers take rights for all of them, and are left out."
            }
        }
        @if visit.may_on_some(Scope::Emit) {
            p.actions { a.button href=(visit.link(&["new-event"])) { "Emit an event" } }
        }
        @for module in modules { (of_module(visit, module)) }
    }
}

/// The way to all events of a module.
fn of_module(visit: &Visit, module: &str) -> Markup {
    let events = visit.link_with(&["events"], &[("module", module)]);
    html! {
        p.actions { "Of the module " strong { (module) } ": " a.button href=(events) { "All its events" } }
    }
}

/// The handlers that have events, rules or targets; then those that the rights name and that have
/// none yet.
fn listed(visit: &Visit, handlers: &List<Handler>) -> Markup {
    let idle = if handlers.next_cursor.is_none() { idle(visit, handlers) } else { Vec::new() };
    if handlers.items.is_empty() && idle.is_empty() {
        return empty(
            "None of your handlers has events, rules or targets.",
            html! { "Once an event of one of them is emitted, it shows up here within seconds." },
        );
    }
    let head =
        ["Handler", "State", ">Waiting", ">Running", ">Delayed", ">Dead", "Oldest due", "Events", "You may"];
    html! {
        (table("Your handlers", &head, html! {
            @for handler in handlers.items.iter().chain(&idle) { (row(visit, handler)) }
        }))
        (pager(visit, handlers.next_cursor.as_deref()))
    }
}

fn idle(visit: &Visit, known: &List<Handler>) -> Vec<Handler> {
    let named = visit.handlers_with(Scope::Read).into_iter();
    let named =
        named.filter_map(|(module, name)| Some(Handler { module, name: name?, ..Handler::default() }));
    let is_known =
        |one: &Handler| known.items.iter().any(|it| (&it.module, &it.name) == (&one.module, &one.name));
    named.filter(|handler| !is_known(handler)).collect()
}

fn row(visit: &Visit, handler: &Handler) -> Markup {
    let (module, name) = (handler.module.as_str(), handler.name.as_str());
    let events = visit.link_with(&["events"], &[("module", module), ("name", name)]);
    let dead = visit.link_with(&["dead-events", "list"], &[("module", module), ("name", name)]);
    html! {
        tr {
            td { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) } }
            td { (state(handler)) }
            td.number { (number(handler.waiting)) }
            td.number { (number(handler.running)) }
            td.number { (number(handler.delayed)) }
            td.number { @if handler.dead > 0 { a href=(dead) { (number(handler.dead)) } } @else { "0" } }
            td { (moment_or(handler.oldest_due, "–")) }
            td { a href=(events) aria-label=(format!("Events of {module}/{name}")) { "Events" } }
            td { (allowed(visit, module, name)) }
        }
    }
}

fn state(handler: &Handler) -> Markup {
    let is = |kind: RuleKind| handler.rules.iter().any(|rule| rule.kind == kind);
    html! {
        @if is(RuleKind::Block) { (badge(Tone::Alarm, "blocked")) " " }
        @if is(RuleKind::Pause) { (badge(Tone::Waiting, "paused")) " " }
        @if handler.unknown_since.is_some() { (badge(Tone::Alarm, "no worker knows it")) }
        @else if handler.rules.is_empty() { (badge(Tone::Calm, "open")) }
    }
}

fn allowed(visit: &Visit, module: &str, name: &str) -> String {
    let rights = RIGHTS.iter().filter(|(scope, _)| visit.may_on(*scope, module, name));
    rights.map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}

/// The handlers for which there are rights without that to read: nothing of them can be shown.
fn unread(visit: &Visit) -> Markup {
    let others = RIGHTS.map(|(scope, word)| (word, unseen(visit, scope)));
    let reads_none = !visit.may_on_some(Scope::Read);
    html! {
        @if others.iter().any(|(_, handlers)| !handlers.is_empty()) {
            h2 { "Without the right to see" }
            ul {
                @for (word, handlers) in &others {
                    @for (module, name) in handlers {
                        li { "You may " (word) " " strong { (module) "/" (name.as_deref().unwrap_or("*")) } "." }
                    }
                }
            }
        } @else if reads_none {
            (empty(
                "You have no right to see events here.",
                html! {
                    "The navigation shows the pages that your rights open. To see events, ask an admin for the "
                    "scope " code { "read" } "."
                },
            ))
        }
    }
}

/// The handlers with this scope that the person may not see.
fn unseen(visit: &Visit, scope: Scope) -> Vec<(String, Option<String>)> {
    let seen = visit.handlers_with(Scope::Read);
    let mut handlers = visit.handlers_with(scope);
    handlers.retain(|(module, name)| {
        !seen.iter().any(|(own, one)| own == module && (one.is_none() || one == name))
    });
    handlers
}
