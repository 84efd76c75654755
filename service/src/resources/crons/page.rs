//! Crons in the browser: when they tick, in words, and what came of their ticks.

mod change;
mod outcomes;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, facts, hidden, json, number, pager, table};
use crate::page::time::{moment, moment_or};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::crons::wire::{CronEventJson, CronJson, Missed};
use crate::resources::events::page::{event_link, state_badge};
use crate::resources::events::wire::EventState;
use crate::resources::wire::List;
pub(crate) use change::{ask_delete, create, delete, pause, put, run_now, unpause};
use wakeq::internals::in_words;

/// The crons of the canvas.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["cron"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let crons: List<CronJson> = ask.shared().await?;
    Ok(View::new("Crons").above(change::new(&visit)).live(listed(&visit, &crons)))
}

fn listed(visit: &Visit, crons: &List<CronJson>) -> Markup {
    if crons.items.is_empty() && visit.parameter("cursor").is_empty() {
        return empty(
            "There are no crons yet.",
            html! {
                "A cron emits an event at each tick of a schedule. Make one here, or with "
                code { "wakeq cron put" } "."
            },
        );
    }
    let head = ["Cron", "When", "State", "Next tick", "Last tick", "What came of it", ">Events"];
    html! {
        (table("Crons", &head, html! {
            @for cron in &crons.items {
                tr {
                    td { a href=(visit.link(&["cron", &cron.name])) { (cron.name) } }
                    td.words { (when(cron)) }
                    td { (state(cron)) }
                    td { (moment_or(cron.next.first().map(|tick| tick.at), "–")) }
                    td { (moment_or(cron.last, "never")) }
                    td { @if let Some(event) = &cron.last_event { (outcome(visit, event)) } }
                    td.number { (number(cron.ticks)) }
                }
            }
        }))
        (pager(visit, crons.next_cursor.as_deref()))
    }
}

/// What became of the event of the last tick, with a link to the event unless it is gone.
fn outcome(visit: &Visit, event: &CronEventJson) -> Markup {
    html! {
        @if event.state == EventState::Gone {
            span.quiet { "completed or removed" } " " code { (event.id) }
        } @else {
            @if event.is_retrying() { (badge(Tone::Waiting, "retrying")) } @else { (state_badge(event.state)) }
            " " (event_link(visit, event.id))
        }
    }
}

/// When it ticks: in words, and as it was written.
fn when(cron: &CronJson) -> Markup {
    let CronJson { expression, zone, .. } = cron;
    html! {
        @match in_words(expression) {
            Some(words) => { (words) " in " (zone) " " code.quiet { (expression) } }
            None => { code { (expression) } " in " (zone) }
        }
    }
}

fn state(cron: &CronJson) -> Markup {
    match (&cron.paused, cron.next.is_empty()) {
        (Some(_), _) => badge(Tone::Waiting, "paused"),
        (None, false) => badge(Tone::Calm, "ticks"),
        (None, true) => badge(Tone::Alarm, "not read by this release"),
    }
}

/// One cron, its ticks, and what came of them. What is not live has its value, and the forms.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let cron: CronJson = visit.ask(&["cron", path.get("cron")]).shared().await?;
    let seen = outcomes::Seen::of(&visit, &cron.name).await?;
    let live = html! {
        p { (state(&cron)) " " (when(&cron)) }
        @if let Some(pause) = &cron.paused {
            p {
                "Paused " (moment(pause.since)) " by " (pause.by) ": "
                (pause.reason.as_deref().unwrap_or("no reason given")) "."
            }
        }
        (about(&visit, &cron))
        (ahead(&cron))
        (seen.shown(&visit, &cron.name))
    };
    let below = html! {
        @if let Some(value) = &cron.value { h2 { "Value of its events" } (json(value.get())) }
        @if cron.hidden.is_some() { h2 { "Value of its events" } (hidden()) }
        (change::existing(&visit, &cron))
    };
    Ok(View::new(format!("Cron {}", cron.name)).above(actions(&visit, &cron)).live(live).below(below))
}

fn actions(visit: &Visit, cron: &CronJson) -> Markup {
    let link = |verb: &str| visit.link(&["cron", &cron.name, verb]);
    html! {
        (change::run(visit, cron))
        @if visit.may(Scope::Operate) {
            @if cron.paused.is_none() {
                (form::change(visit, &link("pause"), html! {
                    (form::text("reason", "Why, for others to read", "", "the warehouse moves"))
                    button type="submit" { "Pause the cron" }
                }))
            }
            div.actions {
                @if cron.paused.is_some() { (form::button(visit, &link("unpause"), "Resume the cron")) }
                a.button href=(link("delete")) { "Delete the cron" }
            }
        }
    }
}

fn about(visit: &Visit, cron: &CronJson) -> Markup {
    let missed = match cron.missed {
        Missed::Skip => "are skipped",
        Missed::Once => "are made up for by the last one",
        Missed::All => "are all made up for, at most 1,000",
    };
    facts(&[
        (
            "Handler",
            Some(html! {
                a href=(visit.link(&["handlers", "CRON", &cron.name])) { "CRON/" (cron.name) }
                @if cron.modifier != "_" { " / " (cron.modifier) }
            }),
        ),
        ("Last tick", Some(moment_or(cron.last, "never"))),
        ("What came of it", cron.last_event.as_ref().map(|event| outcome(visit, event))),
        ("Events so far", Some(html! { (number(cron.ticks)) })),
        ("Missed ticks", Some(html! { (missed) })),
        ("Made", Some(html! { (moment(cron.created_at)) " by " (cron.created_by) })),
        ("Changed", Some(moment(cron.changed_at))),
    ])
}

/// Its next ticks, also by its own clock.
fn ahead(cron: &CronJson) -> Markup {
    html! {
        h2 { "Next ticks" }
        @if cron.next.is_empty() {
            p.quiet {
                @if cron.paused.is_some() { "None while the cron is paused." }
                @else { "None that this release can tell." }
            }
        } @else {
            (table("Next ticks", &["Tick", "On the clock there"], html! {
                @for tick in &cron.next {
                    tr {
                        td { (moment(tick.at)) }
                        td { (tick.local.format("%a %-d %b %Y, %H:%M:%S (%:z)").to_string()) }
                    }
                }
            }))
        }
    }
}
