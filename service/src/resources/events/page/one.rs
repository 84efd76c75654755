//! One event: what it waits for, its story, and what can be done.

use maud::{Markup, html};

use super::story::story;
use super::{event_link, handler_link, object_link, queue_link, state_badge, tags, worker_link};
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{copied, empty, facts, hidden, json, number};
use crate::page::time::{exact, length, moment};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::emit::wire::OptionsJson;
use crate::resources::events::wire::{EventDetail, EventState};
use crate::resources::limits::wire::LimitJson;

/// One event.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let id = path.get("id");
    let ask = visit.ask(&["events", id]);
    let found: Result<EventDetail, Problem> =
        if shows_value(&visit) { ask.query("view", "full").get().await } else { ask.shared().await };
    let event = match found {
        Ok(event) => event,
        Err(problem) if problem.kind == Kind::NotFound => return Ok(missing(&visit, id, &problem)),
        Err(problem) => return Err(problem),
    };
    let (limit, keys) = tokio::try_join!(limit_of(&visit, &event), keys_of(&visit, &event))?;
    let contents =
        html! { (state(&event)) (story(&visit, &event, limit.as_deref())) (about(&visit, &event, &keys)) };
    let view = View::new(format!("Event {}", event.id)).above(actions(&visit, &event));
    let rest = html! {
        @if !visit.may(Scope::Values) { h2 { "Value" } (hidden()) }
        (rescheduling(&visit, &event)) (tagging(&visit, &event)) (from_a_shell(&visit, &event))
    };
    Ok(if shows_value(&visit) {
        view.below(html! { (contents) (values(&event)) (rest) })
    } else {
        view.live(contents).below(rest)
    })
}

/// The limit that an event waits for, if the person may see it. One over all canvases is an
/// operator's.
async fn limit_of(visit: &Visit, event: &EventDetail) -> Result<Option<String>, Problem> {
    match event.limit.as_ref().filter(|wait| !wait.all_canvases && visit.may(Scope::Read)) {
        Some(wait) => limit_on(visit, &wait.name).await,
        None => Ok(None),
    }
}

/// A key that an emit has named, and the limit that it has, if any that the person may see.
struct LimitKey<'e> {
    key: &'e str,
    limit: Option<String>,
}

/// The keys that its emit has named: three at most.
async fn keys_of<'e>(visit: &Visit, event: &'e EventDetail) -> Result<Vec<LimitKey<'e>>, Problem> {
    let named = event.options.as_ref().map_or(&[][..], |options| options.limits.as_slice());
    let mut keys = Vec::new();
    for key in named {
        let limit = if visit.may(Scope::Read) { limit_on(visit, key).await? } else { None };
        keys.push(LimitKey { key, limit });
    }
    Ok(keys)
}

/// The limit that is in force for a name under which events are counted: the one of exactly this
/// name, or that of the family.
async fn limit_on(visit: &Visit, counted: &str) -> Result<Option<String>, Problem> {
    let family = counted.split_once(':').map_or("", |(family, _)| family);
    for name in [counted, family].into_iter().filter(|name| !name.is_empty()) {
        match visit.ask(&["limits", name]).shared::<LimitJson>().await {
            Ok(limit) => return Ok(Some(limit.name)),
            Err(problem) if problem.kind == Kind::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(None)
}

/// Whether the person has asked for the value, which is recorded.
fn shows_value(visit: &Visit) -> bool {
    visit.parameter("value") == "shown"
}

/// An event may end while somebody is on the way to it.
fn missing(visit: &Visit, id: &str, problem: &Problem) -> View {
    let next = html! {
        "A completed or cancelled event is deleted, unless its handler or its emit keeps it. "
        @if visit.may(Scope::Read) {
            "Look among the "
            a href=(visit.link(&["events"])) { "events" } ", those that are "
            a href=(visit.link(&["ended-events"])) { "kept" } ", and those that are "
            a href=(visit.link(&["dead-events"])) { "dead" } "."
        } @else {
            "Look among those of " a href=(visit.link(&[])) { "your handlers" } "."
        }
    };
    let view = View::new(format!("Event {id}")).refused(problem);
    view.below(empty("There is no such event any more, or there never was.", next))
}

/// The state of an event, and what happens next.
pub(super) fn state(event: &EventDetail) -> Markup {
    html! { p { (state_badge(event.state)) " " (event.next) } }
}

fn actions(visit: &Visit, event: &EventDetail) -> Markup {
    let id = event.id.to_string();
    let to = |what: &str| visit.link(&["events", &id, what]);
    html! {
        div.actions {
            @if visit.may(Scope::Operate) {
                @if event.state == EventState::Delayed { (form::button(visit, &to("run-now"), "Run now")) }
                @if event.state == EventState::Dead { (form::button(visit, &to("redrive"), "Redrive")) }
                @if event.is_waiting() || event.state == EventState::Running {
                    a.button href=(to("cancel")) { "Cancel the event" }
                }
            }
            @if shows_value(visit) { a.button href="?" { "Hide the value" } }
            @else if visit.may(Scope::Values) {
                a.button href="?value=shown" { "Show the value (this is recorded)" }
            }
        }
    }
}

fn about(visit: &Visit, event: &EventDetail, keys: &[LimitKey<'_>]) -> Markup {
    let text = |text: &Option<String>| text.as_ref().map(|text| html! { (text) });
    let handler = event.module.as_deref().zip(event.name.as_deref());
    let handler = handler.map(|(module, name)| handler_link(visit, module, name, event.modifier.as_deref()));
    let object = event.place.as_ref().map(|place| {
        html! { (object_link(visit, &place.object)) ", as its event " (number(place.id)) }
    });
    let batch = event.batch.as_ref().map(|batch| {
        html! {
            @if visit.may(Scope::Read) { a href=(visit.link(&["batches", batch])) { (batch) } }
            @else { (batch) }
        }
    });
    let copy = event.copy_of.as_ref().map(|copied| {
        html! { (event_link(visit, copied.origin)) " in the queue " (queue_link(visit, &copied.queue)) }
    });
    let worker = event.worker.as_ref().map(|worker| match event.worker_process {
        Some(_) => worker_link(visit, worker),
        None => html! { code { (worker) } },
    });
    let error = event.last_error.as_ref().map(|error| html! { pre tabindex="0" { (error) } });
    let group = event.error_group.map(|group| {
        html! {
            a href=(visit.link(&["dead-events", "groups", &group.to_string()])) {
                "all that died of the same error"
            }
        }
    });
    html! {
        h2 { "About it" }
        (facts(&[
            ("Id", Some(copied(&event.id.to_string()))),
            ("Handler", handler),
            ("Due", event.delay_until.map(moment)),
            ("Object", object),
            ("Batch", batch),
            ("Copy of", copy),
            ("Unique key", text(&event.unique_key)),
            ("Retries", Some(html! { (number(event.retries)) })),
            ("Lost claims", (event.losses > 0).then(|| html! { (number(event.losses)) })),
            ("Worker", worker),
            ("Last error", error),
            ("Died of", group),
            ("Target", text(&event.target)),
            ("Trace", event.traceparent.as_deref().map(|parent| traced(visit, parent))),
            ("Outcome of a run", text(&event.outcome)),
            ("Checkpoint", event.checkpoint.as_ref().map(|checkpoint| html! {
                (number(checkpoint.bytes)) " bytes of JSON, stored " (moment(checkpoint.stored_at))
            })),
        ]))
        @if let Some(options) = &event.options { (asked_for(visit, options, keys)) }
    }
}

/// Its trace, with a link to where that is shown.
fn traced(visit: &Visit, traceparent: &str) -> Markup {
    html! {
        (copied(traceparent))
        @if let Some(link) = visit.trace_link(traceparent) { " " a href=(link) { "Show the trace" } }
    }
}

/// What the emit asked for in place of what its handler says.
fn asked_for(visit: &Visit, options: &OptionsJson, keys: &[LimitKey<'_>]) -> Markup {
    let delays = options.delays_s.as_ref().map(|delays| {
        let delays: Vec<_> = delays.iter().map(|delay| length(*delay)).collect();
        html! { (delays.join(", ")) }
    });
    let limits = (!keys.is_empty()).then(|| {
        html! {
            @for LimitKey { key, limit } in keys {
                @if let Some(limit) = limit { a.tag href=(visit.link(&["limits", limit])) { (key) } }
                @else { span.tag { (key) } }
            }
        }
    });
    html! {
        h2 { "What its emit asked for" }
        (facts(&[
            ("Tags", (!options.tags.is_empty()).then(|| tags(visit, &options.tags))),
            ("Limits", limits),
            ("Retries", options.retries.map(|retries| html! { (number(retries)) })),
            ("Before the retries", delays),
            ("Cut off after", options.timeout_s.map(|timeout| html! { (length(timeout)) })),
            ("Starts no later than", options.not_after.map(moment)),
            ("Kept after its end", options.keep_s.map(|keep| html! { (keep.written(length)) })),
            ("Urgent", options.urgent.then(|| html! { "yes: workers start it first" })),
        ]))
    }
}

/// Value, result and checkpoint as they were written, with exact numbers.
fn values(event: &EventDetail) -> Markup {
    let checkpoint = event.checkpoint.as_ref().and_then(|checkpoint| checkpoint.value.as_ref());
    html! {
        @for (title, value) in
            [("Value", event.value.as_ref()), ("Result", event.result.as_ref()), ("Checkpoint", checkpoint)]
        {
            @if let Some(value) = value { h2 { (title) } (json(value.get())) }
        }
    }
}

/// When it is due, to be changed. The browser adds a field in the reader's zone.
fn rescheduling(visit: &Visit, event: &EventDetail) -> Markup {
    let Some(due) = event.delay_until.filter(|_| event.is_waiting() && visit.may(Scope::Operate)) else {
        return html! {};
    };
    let due = exact(due);
    let action = visit.link(&["events", &event.id.to_string(), "due"]);
    html! {
        details {
            summary { "Change when it is due" }
            (form::change(visit, &action, html! {
                (form::moment("due", "Due", &due))
                p.ends data-ends="due" hidden { span { "Or" } }
                button.main type="submit" { "Make it due then" }
            }))
        }
    }
}

/// The tags, to be changed.
fn tagging(visit: &Visit, event: &EventDetail) -> Markup {
    let is_taggable = event.is_waiting() || matches!(event.state, EventState::Running | EventState::Dead);
    if !visit.may(Scope::Operate) || !is_taggable || event.copy_of.is_some() {
        return html! {};
    }
    let tags = event.options.as_ref().map(|options| options.tags.join(", ")).unwrap_or_default();
    let action = visit.link(&["events", &event.id.to_string(), "tags"]);
    html! {
        details {
            summary { "Change the tags" }
            (form::change(visit, &action, html! {
                (form::text("tags", "Tags, with commas between them", &tags, "customer:7, late"))
                button.main type="submit" { "Set these tags" }
            }))
        }
    }
}

/// The request that shows the same, for a shell that has a key. The browser fills in the server.
fn from_a_shell(visit: &Visit, event: &EventDetail) -> Markup {
    let query = if shows_value(visit) { "?view=full" } else { "" };
    let path = format!("/v1/canvases/{}/events/{}{query}", visit.canvas(), event.id);
    let command = format!(r#"curl -sS -H "authorization: Bearer $WAKEQ_KEY" "$WAKEQ_SERVER{path}""#);
    html! {
        h2 { "From a shell" }
        p data-server=(visit.at_root("")) { (copied(&command)) }
    }
}
