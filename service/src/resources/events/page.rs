//! Events in the browser: the list with its filter, and one event with its story.

use axum::http::Method;
use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, copied, empty, facts, json, number, pager, table};
use crate::page::time::{length, moment};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::events::wire::attempt::AttemptJson;
use crate::resources::events::wire::{CancelledEvent, EventDetail, EventState, EventSummaryJson};
use crate::resources::wire::List;

/// The fields of the filter, as the API names them.
const FILTER: [&str; 10] = [
    "module",
    "name",
    "state",
    "tag",
    "worker",
    "error_text",
    "value_text",
    "emitted_since",
    "emitted_before",
    "cursor",
];

const STATES: [(&str, &str); 10] = [
    ("", "any state"),
    ("ready", "ready"),
    ("running", "running"),
    ("delayed", "delayed"),
    ("behind", "behind another"),
    ("limited", "waits for a limit"),
    ("paused", "paused"),
    ("blocked", "blocked"),
    ("held", "held by its queue"),
    ("halted", "halted"),
];

/// Events that have not ended.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let given: Vec<_> =
        visit.parameters().into_iter().filter(|(name, _)| FILTER.contains(&name.as_str())).collect();
    let searches = given.iter().any(|(name, _)| name == "value_text");
    let ask = visit.ask(&["events"]).queries(&given).query("limit", 100);
    // A search in values is recorded, and so is each person's own.
    let events: List<EventSummaryJson> = if searches { ask.get().await? } else { ask.shared().await? };
    let rows = listed(&visit, &events);
    let view = View::new("Events").above(filter(&visit));
    Ok(if searches { view.below(rows) } else { view.live(rows) })
}

fn filter(visit: &Visit) -> Markup {
    let value = |name: &str| visit.parameter(name);
    form::filter(html! {
        (form::select("state", "State", &value("state"), &STATES))
        (form::text("module", "Module", &value("module"), "WORKER"))
        (form::text("name", "Handler", &value("name"), "send-email"))
        (form::text("tag", "Tag", &value("tag"), "customer:7"))
        (form::text("error_text", "Error contains", &value("error_text"), "timeout"))
        (form::text("value_text", "Value contains", &value("value_text"), "order 42"))
    })
}

fn listed(visit: &Visit, events: &List<EventSummaryJson>) -> Markup {
    if events.items.is_empty() && events.next_cursor.is_none() {
        return empty(
            "No event that has not ended is like that.",
            html! {
                "Those that have died are among the " a href=(visit.link(&["dead-events"])) { "dead events" }
                "; completed ones are deleted, unless their handler keeps them."
            },
        );
    }
    html! {
        (table("Events", &["Event", "State", "Handler", "Due", "Emitted", ">Failed", "Tags"], html! {
            @for event in &events.items { (row(visit, event)) }
        }))
        @if let Some(looked_at) = events.looked_at { p.quiet { (number(looked_at)) " events were looked at for this page." } }
        (pager(visit, events.next_cursor.as_deref()))
    }
}

fn row(visit: &Visit, event: &EventSummaryJson) -> Markup {
    let id = event.id.to_string();
    html! {
        tr {
            td { a href=(visit.link(&["events", &id])) { code { (id) } } }
            td { (state_badge(event.state)) }
            td { a href=(visit.link(&["handlers", &event.module, &event.name])) { (event.module) "/" (event.name) } }
            td { (moment(event.delay_until)) }
            td { (moment(event.enqueued_at)) }
            td.number { (number(event.retries)) }
            td { (tags(visit, &event.tags)) }
        }
    }
}

/// Tags, which lead to the events that have them.
pub(crate) fn tags(visit: &Visit, tags: &[String]) -> Markup {
    html! { @for tag in tags { a.tag href=(visit.link_with(&["events"], &[("tag", tag)])) { (tag) } } }
}

/// The state of an event in a word.
pub(crate) fn state_badge(state: EventState) -> Markup {
    let (tone, word) = match state {
        EventState::Ready => (Tone::Waiting, "ready"),
        EventState::Behind => (Tone::Waiting, "behind another"),
        EventState::Halted => (Tone::Alarm, "halted"),
        EventState::Held => (Tone::Waiting, "held by its queue"),
        EventState::Delayed => (Tone::Waiting, "delayed"),
        EventState::Running => (Tone::Busy, "running"),
        EventState::Paused => (Tone::Waiting, "paused"),
        EventState::Blocked => (Tone::Alarm, "blocked"),
        EventState::Limited => (Tone::Waiting, "waits for a limit"),
        EventState::Dead => (Tone::Alarm, "dead"),
        EventState::Completed => (Tone::Calm, "completed"),
        EventState::Failed => (Tone::Alarm, "failed"),
        EventState::Cancelled => (Tone::Calm, "cancelled"),
        EventState::Gone => (Tone::Calm, "gone"),
    };
    badge(tone, word)
}

/// One event: what it waits for, its story, and what can be done.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let id = path.get("id");
    let shows_value = visit.parameter("value") == "shown";
    let ask = visit.ask(&["events", id]);
    let event: EventDetail =
        if shows_value { ask.query("view", "full").get().await? } else { ask.shared().await? };
    let contents = html! { (state(&event)) (story(&event)) (about(&visit, &event)) };
    let view = View::new(format!("Event {}", event.id)).above(actions(&visit, &event));
    Ok(if shows_value { view.below(html! { (contents) (value(&event)) }) } else { view.live(contents) })
}

fn actions(visit: &Visit, event: &EventDetail) -> Markup {
    let id = event.id.to_string();
    let handler = event.module.as_deref().zip(event.name.as_deref());
    let may_operate = handler.is_some_and(|(module, name)| visit.may_on(Scope::Operate, module, name));
    let ended = matches!(
        event.state,
        EventState::Dead
            | EventState::Completed
            | EventState::Failed
            | EventState::Cancelled
            | EventState::Gone
    );
    html! {
        div.actions {
            @if may_operate && !ended {
                @if event.state == EventState::Delayed { (form::button(visit, &visit.link(&["events", &id, "run-now"]), "Run now")) }
                a.button href=(visit.link(&["events", &id, "cancel"])) { "Cancel the event" }
            }
            @if visit.parameter("value") == "shown" { a.button href="?" { "Hide the value" } }
            @else { a.button href="?value=shown" { "Show the value (this is recorded)" } }
        }
    }
}

fn state(event: &EventDetail) -> Markup {
    html! { p { (state_badge(event.state)) " " (event.next) } }
}

fn story(event: &EventDetail) -> Markup {
    html! {
        h2 { "Story" }
        ol.story {
            li.calm { "Emitted " (moment(event.enqueued_at)) }
            @for attempt in &event.attempts { (told(attempt)) }
            @if let Some(started_at) = event.started_at {
                li.busy { "The last attempt started " (moment(started_at))
                    @if let Some(took_s) = event.took_s { " and took " (length(took_s)) } }
            }
            @if let Some(since) = event.since { li.waiting { (state_badge(event.state)) " since " (moment(since)) } }
            @if let Some(until) = event.until { li.waiting { "until " (moment(until)) } }
            @if let Some(kept_until) = event.kept_until { li.calm { "Kept until " (moment(kept_until)) } }
        }
    }
}

fn told(attempt: &AttemptJson) -> Markup {
    html! {
        li.alarm {
            "Attempt " (number(attempt.number)) " " (moment(attempt.started_at))
            @if let Some(worker) = &attempt.worker { " on " code { (worker) } }
            " took " (length(attempt.took_s)) ": " (attempt.outcome)
            @if let Some(error) = &attempt.error { pre tabindex="0" { (error) } }
        }
    }
}

fn about(visit: &Visit, event: &EventDetail) -> Markup {
    let text = |text: &Option<String>| text.as_ref().map(|text| html! { (text) });
    let handler = event.module.as_deref().zip(event.name.as_deref()).map(|(module, name)| {
        html! { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) }
            @if let Some(modifier) = event.modifier.as_deref().filter(|modifier| *modifier != "_") { " / " (modifier) } }
    });
    html! {
        h2 { "About it" }
        (facts(&[
            ("Id", Some(copied(&event.id.to_string()))),
            ("Handler", handler),
            ("Due", event.delay_until.map(moment)),
            ("Failed attempts", Some(html! { (number(event.retries)) })),
            ("Lost claims", (event.losses > 0).then(|| html! { (number(event.losses)) })),
            ("Worker", text(&event.worker)),
            ("Last error", event.last_error.as_ref().map(|error| html! { pre tabindex="0" { (error) } })),
            ("Why it died", text(&event.cause)),
            ("Cancelled by", text(&event.cancelled_by)),
            ("Target", text(&event.target)),
            ("Unique key", text(&event.unique_key)),
            ("Batch", text(&event.batch)),
            ("Trace", event.traceparent.as_deref().map(copied)),
        ]))
    }
}

fn value(event: &EventDetail) -> Markup {
    html! {
        @if let Some(value) = &event.value { h2 { "Value" } (json(value.get())) }
        @if let Some(result) = &event.result { h2 { "Result" } (json(result.get())) }
    }
}

/// Makes a delayed event due.
pub(crate) async fn run_now(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("id");
    visit.ask(&["events", id, "run-now"]).order(Method::POST).await?;
    Ok(Done::new(visit.link(&["events", id]), "The event is due now."))
}

/// Asks before an event is cancelled.
pub(crate) async fn ask_cancel(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let id = path.get("id");
    let event: EventDetail = visit.ask(&["events", id]).get().await?;
    let question = "Cancel this event? It is deleted, and nothing runs for it any more.";
    let (action, back) = (visit.link(&["events", id, "cancel"]), visit.link(&["events", id]));
    Ok(View::new(format!("Cancel event {}", event.id))
        .above(html! { (state(&event)) (form::confirm(&visit, &action, question, "Cancel the event", &back, html! {})) }))
}

/// Cancels it.
pub(crate) async fn cancel(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("id");
    let cancelled: CancelledEvent = visit.ask(&["events", id, "cancel"]).post(&serde_json::json!({})).await?;
    let said = match cancelled.next {
        Some(next) => format!("The event is being cancelled: {next}."),
        None => format!("The event {} was cancelled.", cancelled.id),
    };
    Ok(Done::new(visit.link(&["events"]), said))
}
