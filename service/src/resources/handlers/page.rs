//! Handlers in the browser: the list of them, and one with its counts, its history and what stops
//! it.

mod about;
pub(crate) mod purge;
pub(crate) mod rules;
pub(crate) mod stops;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, number, pager, table, tile};
use crate::page::time::{moment, moment_or};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::handlers::wire::{Handler, RuleJson, RuleKind, RuleReachJson};
use crate::resources::statistics::page::{History, Span};
use crate::resources::targets::page as targets;
use crate::resources::wire::List;
use about::Surroundings;

/// The module of handlers that are named without one.
const WORKER: &str = "WORKER";

/// The handlers of the canvas, or the one that the address names.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let named = visit.parameter("name");
    let switches = visit.ask(&["switches"]).shared::<List<RuleJson>>().await?;
    let view = View::new("Handlers").filter(filter(&visit, &named)).above(actions_of_all(&visit));
    let found = if named.is_empty() {
        let ask = visit.ask(&["handlers"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
        ask.shared::<List<Handler>>().await?
    } else {
        let (module, name) = named.split_once('/').unwrap_or((WORKER, named.as_str()));
        let handler: Handler = visit.ask(&["handlers", module, name]).shared().await?;
        if handler.is_empty() && handler.unknown_since.is_none() {
            return Ok(view.below(nothing(&visit, module, name)));
        }
        List::whole([handler])
    };
    let live = html! {
        @if !switches.items.is_empty() {
            h2 { "Stopped as a whole" }
            (rules::listed(&visit, &switches.items))
        }
        (listed(&visit, &found))
    };
    Ok(view.live(live))
}

fn actions_of_all(visit: &Visit) -> Markup {
    html! {
        p.actions {
            a.button href=(visit.link(&["switches"])) { "Stop the whole canvas" }
            a.button href=(visit.link(&["targets"])) { "All targets" }
        }
    }
}

fn filter(visit: &Visit, named: &str) -> Markup {
    form::filter(visit, html! { (form::text("name", "Handler", named, "send-email, or MODULE/send-email")) })
}

/// A handler without anything can be opened all the same: it may get a target, or a pause.
fn nothing(visit: &Visit, module: &str, name: &str) -> Markup {
    empty(
        "This handler has no events, rules or targets.",
        html! {
            "Look for the right name in the list of all, or "
            a href=(visit.link(&["handlers", module, name])) { "open " (module) "/" (name) }
            " to register a target for it or to pause it beforehand."
        },
    )
}

fn listed(visit: &Visit, handlers: &List<Handler>) -> Markup {
    if handlers.items.is_empty() && handlers.next_cursor.is_none() {
        return empty(
            "No handler has events, rules or targets.",
            html! { "Emit an event, and its handler shows up here within seconds." },
        );
    }
    let head = [
        "Handler",
        "State",
        ">Waiting",
        ">Running",
        ">Delayed",
        ">Paused",
        ">Dead",
        ">Halted",
        "Oldest due",
        ">Targets",
    ];
    html! {
        (table("Handlers", &head, html! { @for handler in &handlers.items { (row(visit, handler)) } }))
        (pager(visit, handlers.next_cursor.as_deref()))
    }
}

fn row(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, targets, more_targets, .. } = handler;
    let more = if *more_targets { "more than " } else { "" };
    html! {
        tr {
            td { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) } }
            td { (state(handler)) }
            td.number { (number(handler.waiting)) }
            td.number { (number(handler.running)) }
            td.number { (number(handler.delayed)) }
            td.number { (number(handler.paused)) }
            td.number { (number(handler.dead)) }
            td.number { (number(handler.halted)) }
            td { (moment_or(handler.oldest_due, "–")) }
            td.number { (more) (number(targets.len() as u64)) }
        }
    }
}

/// What keeps a handler's events from running, in badges.
fn state(handler: &Handler) -> Markup {
    let is = |kind: RuleKind| handler.rules.iter().any(|rule| rule.kind == kind);
    let is_gone = handler.targets.iter().any(|target| target.gone_since.is_some());
    let unknown = handler.unknown_since.is_some();
    html! {
        @for kind in [RuleKind::Block, RuleKind::Pause] { @if is(kind) { (rules::state_badge(kind)) " " } }
        @if unknown { (badge(Tone::Alarm, "no worker knows it")) " " }
        @if is_gone { (badge(Tone::Alarm, "a target is gone")) }
        @if handler.rules.is_empty() && !unknown && !is_gone { (badge(Tone::Calm, "open")) }
    }
}

/// One handler.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let (of, span) = (["handlers", module, name], Span::of(&visit));
    let (handler, history, around) = tokio::join!(
        visit.ask(&of).shared::<Handler>(),
        History::compared(&visit, &of, span),
        Surroundings::read(&visit, module, name)
    );
    let (handler, history, around) = (handler?, history?, around?);
    let live = html! {
        (counts(&visit, &handler))
        (around.pulled())
        @if !handler.rules.is_empty() { h2 { "What stops it" } (rules::listed(&visit, &handler.rules)) }
        (history.show())
        (history.spread())
        (around.limits(&visit))
        h2 { "Targets" }
        (targets::of_handler(&visit, &handler))
    };
    let above = html! { (actions(&visit, &handler)) (span.choice()) };
    Ok(View::new(format!("{module}/{name}")).above(above).live(live))
}

/// What can be done, as far as the person may.
fn actions(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, rules: standing, .. } = handler;
    let to = |verb: &str| visit.link(&["handlers", module, name, verb]);
    let operates = visit.may_on(Scope::Operate, module, name);
    let is = |kind: RuleKind| rules::standing(standing, kind, RuleReachJson::Handler).is_some();
    html! {
        div.actions {
            @if operates {
                @if is(RuleKind::Pause) {
                    (form::button(visit, &to("unpause"), "Lift the pause"))
                    a.button href=(to("pause")) { "Change the pause" }
                } @else {
                    a.button href=(to("pause")) { "Pause" }
                }
            }
            @if visit.may(Scope::Admin) {
                @if is(RuleKind::Block) {
                    (form::button(visit, &to("unblock"), "Lift the block"))
                    a.button href=(to("block")) { "Change the block" }
                } @else {
                    a.button href=(to("block")) { "Block" }
                }
            }
            @if operates && [Scope::Read, Scope::Values].iter().all(|scope| visit.may_on(*scope, module, name)) {
                a.button href=(to("new-target")) { "Register a target" }
            }
            @if operates { a.button href=(to("purge")) { "Purge" } }
        }
    }
}

fn counts(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, waiting, delayed, paused, running, dead, halted, .. } = handler;
    let (module, name) = (("module", module.as_str()), ("name", name.as_str()));
    let alarm = |count: i64| if count > 0 { Tone::Alarm } else { Tone::Calm };
    let of_state = |state: &str| visit.link_with(&["events"], &[module, name, ("state", state)]);
    // What they died of, and halted objects, are shown to those who may see all handlers.
    let is_whole = visit.may(Scope::Read);
    let dead_events: &[&str] = if is_whole { &["dead-events"] } else { &["dead-events", "list"] };
    let dead_events = visit.link_with(dead_events, &[module, name]);
    let halted_objects = is_whole.then(|| visit.link(&["halted-objects"]));
    html! {
        div.tiles {
            (tile("waiting", &number(*waiting), Tone::Waiting, Some(&of_state("ready,behind,limited,held"))))
            (tile("running", &number(*running), Tone::Busy, Some(&of_state("running"))))
            (tile("delayed", &number(*delayed), Tone::Waiting, Some(&of_state("delayed"))))
            (tile("paused or blocked", &number(*paused), Tone::Waiting, Some(&of_state("paused,blocked"))))
            (tile("dead", &number(*dead), alarm(*dead), Some(&dead_events)))
            (tile("halted objects", &number(*halted), alarm(*halted), halted_objects.as_deref()))
        }
        @if let Some(due) = handler.oldest_due { p { "The oldest event has been due since " (moment(due)) "." } }
        @if let Some(since) = handler.unknown_since {
            div.trouble {
                p {
                    "Since " (moment(since)) " workers have received events of this handler without knowing it. "
                    "They wait."
                }
                p { "Start a worker of a release that has this handler, or register a target for it." }
            }
        }
    }
}
