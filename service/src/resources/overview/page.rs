//! The first page: how many events there are, what happened to them lately, what is wrong, and what
//! stops them.

mod own;
mod wrong;

use std::cmp::Ordering;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, empty, number, table, tile};
use crate::page::time::{moment, moment_or};
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::doctor::wire::{DoctorReport, LevelJson};
use crate::resources::handlers::page::rules;
use crate::resources::handlers::wire::{CanvasCounts, Handler, RuleJson, RuleKind, RuleReachJson};
use crate::resources::statistics::page::{History, Span};

/// The overview of the canvas, or of the handlers that the person may see.
pub(crate) async fn show(visit: Visit) -> Result<View, Problem> {
    if !visit.may(Scope::Read) {
        return own::show(&visit).await;
    }
    let span = Span::of(&visit);
    let (history, hour, counted, doctor) = tokio::join!(
        History::compared(&visit, &[], span),
        History::read(&visit, &[], Span::hour()),
        visit.ask(&["counts"]).shared::<CanvasCounts>(),
        doctor(&visit),
    );
    let (history, hour, counted) = (history?, hour?, counted?);
    let known = wrong::Known { counts: &counted, died_in_hour: hour.died(), doctor: doctor.as_ref() };
    let wrong = wrong::list(&visit, &known).await;
    let live = html! {
        (wrong)
        (counts(&visit, &counted))
        (growth(hour.grown()))
        (history.show())
        (stopped(&visit, &counted))
        (by_handler(&visit, &counted))
    };
    let findings = doctor.and_then(Result::ok).map(|report| findings(&report)).unwrap_or_default();
    Ok(View::new("Overview").above(span.choice()).live(live).below(findings))
}

/// What the doctor finds, for those who may know about the whole deployment.
async fn doctor(visit: &Visit) -> Option<Result<DoctorReport, Problem>> {
    if !visit.may_everywhere(Scope::Admin) {
        return None;
    }
    Some(visit.ask_everywhere(&["doctor"]).shared().await)
}

fn findings(report: &DoctorReport) -> Markup {
    let level = |level| match level {
        LevelJson::Ok => badge(Tone::Calm, "ok"),
        LevelJson::Warn => badge(Tone::Waiting, "look"),
        LevelJson::Fail => badge(Tone::Alarm, "wrong"),
    };
    html! {
        h2 #doctor { "The doctor" }
        p.quiet {
            "This process looked at the database " (moment(report.checked_at)) ". The command " code { "wakeq doctor" }
            " also looks at connections, the pooler and Pub/Sub."
        }
        (table("Findings of the doctor", &["Level", "What", "Found", "To mend it"], html! {
            @for finding in &report.findings {
                tr {
                    td { (level(finding.level)) }
                    td { (finding.what) }
                    td.words { (finding.found) }
                    td.words { (finding.mend.as_deref().unwrap_or("–")) }
                }
            }
        }))
    }
}

fn counts(visit: &Visit, counted: &CanvasCounts) -> Markup {
    let CanvasCounts { waiting, delayed, paused, running, dead, halted, .. } = *counted;
    let at_least = if counted.capped { "at least " } else { "" };
    let shown = |count: i64| format!("{at_least}{}", number(count));
    let alarm = |count: i64| if count > 0 { Tone::Alarm } else { Tone::Calm };
    let of_state = |state: &str| visit.link_with(&["events"], &[("state", state)]);
    html! {
        div.tiles {
            (tile("in the queue", &shown(waiting + delayed + paused + running), Tone::Calm, Some(&visit.link(&["events"]))))
            (tile("waiting", &shown(waiting), Tone::Waiting, Some(&of_state("ready,behind,limited,held"))))
            (tile("running", &shown(running), Tone::Busy, Some(&of_state("running"))))
            (tile("delayed", &shown(delayed), Tone::Waiting, Some(&of_state("delayed"))))
            (tile("paused or blocked", &shown(paused), Tone::Waiting, Some(&of_state("paused,blocked"))))
            (tile("dead", &shown(dead), alarm(dead), Some(&visit.link(&["dead-events"]))))
            (tile("halted objects", &shown(halted), alarm(halted), Some(&visit.link(&["halted-objects"]))))
        }
        p {
            "The oldest event has been due since " (moment_or(counted.oldest_due, "no time: none is due")) "."
        }
    }
}

/// Whether the queue grows. What is cancelled, purged or redriven is not counted.
fn growth(grown: i128) -> Markup {
    let more = number(grown.abs());
    html! {
        p {
            @match grown.cmp(&0) {
                Ordering::Greater => {
                    "In the last hour " strong { (more) " more" } " were emitted than ended: the queue grows."
                }
                Ordering::Equal => { "In the last hour as many events ended as were emitted." }
                Ordering::Less => {
                    "In the last hour " strong { (more) " fewer" } " were emitted than ended: the queue shrinks."
                }
            }
        }
    }
}

/// The rules in force, with author and end.
fn stopped(visit: &Visit, counted: &CanvasCounts) -> Markup {
    let handlers = &counted.stopped;
    // Those on the whole canvas are said above, once.
    let all = handlers.iter().flat_map(|handler| handler.rules.iter().map(move |rule| (handler, rule)));
    let in_force = all.filter(|(_, rule)| rule.stops == RuleReachJson::Handler);
    html! {
        @if !handlers.is_empty() {
            h2 #stopped { "Rules in force" }
            ul.troubles {
                @for (handler, rule) in in_force {
                    li { (rule_badge(rule)) span { (ruled(visit, handler, rule)) } }
                }
            }
            (all_of(visit, handlers, counted.stopped_handlers))
        }
    }
}

/// The way to the others, if these are not all handlers that there are.
fn all_of(visit: &Visit, shown: &[Handler], count: i64) -> Markup {
    html! {
        @if i64::try_from(shown.len()).is_ok_and(|shown| shown < count) {
            p {
                "These are " (number(shown.len() as u64)) " of " (number(count)) " handlers. "
                a href=(visit.link(&["handlers"])) { "All handlers" }
            }
        }
    }
}

/// A sentence rather than columns, so that all of it is seen on a narrow screen, too.
fn ruled(visit: &Visit, handler: &Handler, rule: &RuleJson) -> Markup {
    html! {
        (handler_link(visit, handler)) " by " (rule.created_by) ", " (moment(rule.created_at))
        ", until " (rules::end(rule)) "."
        @if let Some(reason) = &rule.reason { " " q { (reason) } }
    }
}

fn rule_badge(rule: &RuleJson) -> Markup {
    match rule.kind {
        RuleKind::Pause => badge(Tone::Waiting, "paused"),
        RuleKind::Block => badge(Tone::Alarm, "blocked"),
    }
}

fn by_handler(visit: &Visit, counted: &CanvasCounts) -> Markup {
    if counted.busiest.is_empty() {
        return empty(
            "Nothing was emitted here yet.",
            html! { "Emit an event, and it shows up within seconds." },
        );
    }
    let head = ["Handler", ">Waiting", ">Running", ">Delayed", ">Dead", "Oldest due"];
    html! {
        h2 { "By handler" }
        (table("Handlers", &head, html! {
            @for handler in &counted.busiest {
                tr {
                    td {
                        (handler_link(visit, handler))
                        @if handler.unknown_since.is_some() { " " (badge(Tone::Alarm, "no worker knows it")) }
                    }
                    td.number { (number(handler.waiting)) }
                    td.number { (number(handler.running)) }
                    td.number { (number(handler.delayed)) }
                    td.number { (number(handler.dead)) }
                    td { (moment_or(handler.oldest_due, "–")) }
                }
            }
        }))
        (all_of(visit, &counted.busiest, counted.handlers))
    }
}

fn handler_link(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, .. } = handler;
    html! { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) } }
}
