//! The dead events of a group in the browser.

use axum::Form;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, events, hidden, json_of_many, pager, table};
use crate::page::time::{moment, now};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::groups::wire::{GroupDeadJson, RedriveGroup, RedrivenGroup};
use crate::resources::wire::List;

/// How many are counted for the question: as many as a page of the API has.
const COUNTED_MAX: u32 = 1_000;

/// What a group has given up. It has payloads, so who has looked is recorded, and nothing of it is
/// live.
pub(crate) async fn list(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let group = path.get("group");
    let ask = visit.ask_everywhere(&["groups", group, "dead"]).query("limit", 100);
    let dead: List<GroupDeadJson> = ask.query("cursor", visit.parameter("cursor")).get().await?;
    let may_redrive = visit.may_everywhere(Scope::Operate) && !is_of_entities(group);
    let view = View::new(format!("Dead events of {group}")).above(html! {
        div.actions {
            a.button href=(visit.link(&["groups", group])) { "Back to the group" }
            @if may_redrive && !dead.items.is_empty() {
                a.button href=(visit.link(&["groups", group, "dead", "redrive"])) { "Redrive all…" }
            }
        }
        @if is_of_entities(group) {
            p {
                "A dead event of an entity can't be redriven, since later ones were processed: send it to \
                 the entity again, as a new event."
            }
        } @else {
            p { "A redriven event is tried again once, after later ones." }
        }
    });
    Ok(view.below(html! {
        (listed(&visit, group, &dead, may_redrive))
        @if visit.may_everywhere(Scope::Values) {
            p.quiet { "The record says that you have looked at the payloads." }
        }
    }))
}

fn is_of_entities(group: &str) -> bool {
    group.starts_with("entities.")
}

fn listed(visit: &Visit, group: &str, dead: &List<GroupDeadJson>, may_redrive: bool) -> Markup {
    if dead.items.is_empty() && dead.next_cursor.is_none() {
        return empty("The group has given up no event.", html! { "There is nothing to be done." });
    }
    let mut head = vec![">Log number", "Event", "Stream", "Died", ">Attempts", "Error", "Payload"];
    head.extend(may_redrive.then_some("What to do"));
    html! {
        (table("Dead events", &head, html! {
            @for event in &dead.items {
                tr {
                    td.number { (event.seq) }
                    td { (event.name) }
                    td { (stream_link(visit, event)) }
                    td { (moment(event.died_at)) }
                    td.number { (event.attempts) }
                    td.words { (event.error) }
                    td { (payload(event)) }
                    @if may_redrive { td { (control(visit, group, event)) } }
                }
            }
        }))
        (pager(visit, dead.next_cursor.as_deref()))
    }
}

fn payload(event: &GroupDeadJson) -> Markup {
    let text = event.payload.as_deref().map_or("null", RawValue::get);
    html! {
        @if event.hidden.is_some() { (hidden()) } @else { details { summary { "Payload" } (json_of_many(text)) } }
    }
}

/// The stream's log, on the canvas of the event.
fn stream_link(visit: &Visit, event: &GroupDeadJson) -> Markup {
    let query = [("category", event.category.as_str()), ("stream", event.stream.as_str())];
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let to = visit.at_root(&format!("/canvases/{}/log?{query}", event.canvas));
    html! {
        a href=(to) { (event.category) "/" (event.stream) }
        @if event.canvas != visit.canvas().0 {
            " " span.quiet { "on the canvas " (event.canvas.to_string()) }
        }
    }
}

fn control(visit: &Visit, group: &str, event: &GroupDeadJson) -> Markup {
    if event.redriven {
        return badge(Tone::Waiting, "will be tried again");
    }
    let action = visit.link(&["groups", group, "dead", "redrive"]);
    let contents = html! {
        (form::hidden("seq", &event.seq.to_string()))
        button type="submit" { "Redrive" }
    };
    form::change(visit, &action, contents)
}

/// Asks before all are redriven.
pub(crate) async fn ask_redrive(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs_everywhere(Scope::Operate)?;
    let group = path.get("group");
    let ask = visit.ask_everywhere(&["groups", group, "dead"]).query("limit", COUNTED_MAX);
    let dead: List<GroupDeadJson> = ask.get().await?;
    let view = View::new(format!("Redrive the dead events of {group}"));
    let back = visit.link(&["groups", group, "dead"]);
    let count = dead.items.iter().filter(|event| !event.redriven).count();
    let is_all = dead.next_cursor.is_none();
    let last = dead.items.iter().map(|event| event.died_at).max().filter(|_| count > 0 || !is_all);
    let Some(last) = last else {
        let next = html! { a.button href=(back) { "Back to the dead events" } };
        return Ok(view.above(empty("There is nothing to redrive.", next)));
    };
    let looked_at = events(dead.items.len() as u64);
    let some = if is_all { events(count as u64) } else { format!("more than {looked_at}") };
    // The list has the order of the log: what was not looked at may have died later.
    let after_last = last + TimeDelta::microseconds(1);
    let before = if is_all { after_last } else { after_last.max(now()) };
    let before = before.to_rfc3339_opts(SecondsFormat::Micros, true);
    let (action, fields) =
        (visit.link(&["groups", group, "dead", "redrive"]), form::hidden("before", &before));
    let (question, yes) = (format!("Redrive {some} of {group}?"), format!("Redrive {some}"));
    Ok(view.above(html! {
        p {
            "Each is tried again once, after later ones. Those that will be tried again already, and those \
             that die from now on, are left alone."
        }
        (form::confirm(&visit, &action, &question, &yes, &back, fields))
    }))
}

/// Which event is redriven, or until when those died that are.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RedriveForm {
    seq: String,
    before: String,
}

impl RedriveForm {
    fn read(&self) -> Result<RedriveGroup, Problem> {
        if !self.seq.is_empty() {
            let words = "an event's log number is a number";
            let seq = self.seq.parse::<i64>().map_err(|_| Problem::bad_request(words))?;
            return Ok(RedriveGroup { seq: Some(seq), before: None });
        }
        let words = "look first at how many events would be redriven: the page before says it";
        let before = self.before.parse::<DateTime<Utc>>().map_err(|_| Problem::bad_request(words))?;
        Ok(RedriveGroup { seq: None, before: Some(before) })
    }
}

/// Redrives one of them, or all.
pub(crate) async fn redrive(
    visit: Visit,
    path: PathParts,
    Form(given): Form<RedriveForm>,
) -> Result<Done, Problem> {
    let group = path.get("group");
    let ask = visit.ask_everywhere(&["groups", group, "dead", "redrive"]);
    let RedrivenGroup { redriven, more, .. } = ask.post(&given.read()?).await?;
    let rest = if more { " There may be more: redrive again." } else { "" };
    let said = format!("{} of {group} will be tried again.{rest}", events(redriven));
    Ok(Done::new(visit.link(&["groups", group, "dead"]), said))
}
