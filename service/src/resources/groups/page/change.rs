//! Changes of a group in the browser: reset, retry and remove, each with what it means.

use axum::Form;
use axum::http::Method;
use maud::{Markup, html};
use serde::Deserialize;

use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{number, table};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::groups::wire::{GroupJson, GroupSourceJson, ResetGroupJson, ResetRequest};

/// How many sources are shown and offered.
const SHOWN: usize = 500;

/// Asks where to, and then says what is read again before a group is reset.
pub(crate) async fn ask_reset(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let group = group(&visit, &path).await?;
    let view = View::new(format!("Reset the group {}", group.name));
    let source = visit.parameter("source");
    match to(&visit, &group)? {
        None => Ok(view.above(choice(&visit, &group, &source))),
        Some(to) => Ok(view.above(preview(&visit, &group, &source, &to)?)),
    }
}

async fn group(visit: &Visit, path: &PathParts) -> Result<GroupJson, Problem> {
    visit.ask_everywhere(&["groups", path.get("group")]).get().await
}

/// Where a group resumes: as the API takes it, and the log number.
struct Target {
    to: String,
    position: i64,
}

/// What the address says; `None` if nothing was chosen yet.
fn to(visit: &Visit, group: &GroupJson) -> Result<Option<Target>, Problem> {
    let (to, after) = (visit.parameter("to"), visit.parameter("after"));
    let end = group.sources.iter().map(readable).max().unwrap_or(0);
    let position = match (to.as_str(), after.trim()) {
        ("start", _) => 0,
        ("end", _) => end,
        ("after", number) => match number.parse::<i64>() {
            Ok(position) if (0..=end).contains(&position) => {
                return Ok(Some(Target { to: position.to_string(), position }));
            }
            Ok(_) | Err(_) => {
                let words = format!(
                    "a group can resume after a log number from 0 to {end}, the last that can be read"
                );
                return Err(Problem::bad_request(words));
            }
        },
        _ => return Ok(None),
    };
    Ok(Some(Target { to, position }))
}

/// The last number of the log that can be read.
fn readable(source: &GroupSourceJson) -> i64 {
    source.position.saturating_add_unsigned(source.lag)
}

fn choice(visit: &Visit, group: &GroupJson, source: &str) -> Markup {
    let mut sources = vec![("", "all of them")];
    sources.extend(group.sources.iter().take(SHOWN).map(|one| (one.source.as_str(), one.source.as_str())));
    let places = [("start", "the start of the log"), ("end", "its end"), ("after", "after the number")];
    html! {
        p {
            "Its consumers notice, and go on from there. What that means is shown before anything is changed."
        }
        form.filter method="get" {
            (form::select("to", "Resume at", "start", &places))
            (form::text("after", "Number", "", "1204"))
            (form::select("source", "Source", source, &sources))
            button type="submit" { "See what is read again" }
        }
        p { a href=(visit.link(&["groups", &group.name])) { "Back to the group" } }
    }
}

/// How many log numbers a source reads again, and how many it passes over.
fn moved(source: &GroupSourceJson, position: i64) -> (i64, i64) {
    (source.position.saturating_sub(position).max(0), position.saturating_sub(source.position).max(0))
}

fn preview(visit: &Visit, group: &GroupJson, source: &str, to: &Target) -> Result<Markup, Problem> {
    let chosen: Vec<_> =
        group.sources.iter().filter(|one| source.is_empty() || one.source == source).collect();
    if chosen.is_empty() {
        let words = format!("the group {} has no such source: its page lists its own", group.name);
        return Err(Problem::new(Kind::NotFound, words));
    }
    let moves = chosen.iter().map(|one| moved(one, to.position));
    let (again, over) = moves.fold((0_i64, 0_i64), |(again, over), (one, other)| {
        (again.saturating_add(one), over.saturating_add(other))
    });
    let (action, back) =
        (visit.link(&["groups", &group.name, "reset"]), visit.link(&["groups", &group.name]));
    let fields = html! { (form::hidden("to", &to.to)) (form::hidden("source", source)) };
    let question = question(group, chosen.len(), to.position, again, over);
    let head = ["Source", ">Position now", ">Then", ">Read again", ">Passed over"];
    Ok(html! {
        (form::confirm(visit, &action, &question, "Reset it", &back, fields))
        p {
            "These are log numbers, among which are those of other sources. An event that is read again is \
             handled again; one that is passed over never is."
        }
        (table("Sources", &head, html! {
            @for one in chosen.iter().take(SHOWN) {
                @let (again, over) = moved(one, to.position);
                tr {
                    td { (one.source) }
                    td.number { (one.position) }
                    td.number { (to.position) }
                    td.number { (number(again)) }
                    td.number { (number(over)) }
                }
            }
        }))
    })
}

fn question(group: &GroupJson, sources: usize, position: i64, again: i64, over: i64) -> String {
    let what = match (again, over) {
        (0, 0) => "Nothing is read again".to_owned(),
        (again, 0) => format!("Up to {} events are read again", number(again)),
        (0, over) => format!("Up to {} events are never read", number(over)),
        (again, over) => {
            format!("Up to {} events are read again, and up to {} never", number(again), number(over))
        }
    };
    let sources = if sources == 1 { "1 source".to_owned() } else { format!("{sources} sources") };
    format!("Reset {sources} of {} to log number {position}? {what}.", group.name)
}

/// Where to, as the preview has it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResetForm {
    to: String,
    source: String,
}

/// Resets the group.
pub(crate) async fn reset(
    visit: Visit,
    path: PathParts,
    Form(given): Form<ResetForm>,
) -> Result<Done, Problem> {
    let group = path.get("group");
    let source = Some(given.source).filter(|source| !source.is_empty());
    let request = ResetRequest { to: given.to, source };
    let ask = visit.ask_everywhere(&["groups", group, "reset"]);
    let reset: ResetGroupJson = ask.post(&request).await?;
    let sources =
        if reset.sources == 1 { "1 source".to_owned() } else { format!("{} sources", reset.sources) };
    let said = format!("{group} resumes after log number {} in {sources}.", reset.position);
    Ok(Done::new(visit.link(&["groups", group]), said))
}

/// Has members and sources retry.
pub(crate) async fn recover(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let group = path.get("group");
    visit.ask_everywhere(&["groups", group, "recover"]).order(Method::POST).await?;
    let said = "Its members retry what failed with their next heartbeat.";
    Ok(Done::new(visit.link(&["groups", group]), said))
}

/// Asks before a group, or its position in a source, is removed.
pub(crate) async fn ask_remove(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let group = group(&visit, &path).await?;
    let source = visit.parameter("source");
    let opened = group.sources.iter().filter(|one| one.moved_at.is_some()).count();
    let question = match source.as_str() {
        "" => format!(
            "Remove the group {} with its {}{}? A group of this name would begin at the start of the log.",
            group.name,
            positions(opened),
            if group.pin.is_some() { " and the pin that keeps the log for it" } else { "" },
        ),
        source => format!("Remove 1 position of the group {}: the one in {source}?", group.name),
    };
    let (action, back) =
        (visit.link(&["groups", &group.name, "remove"]), visit.link(&["groups", &group.name]));
    let fields = form::hidden("source", &source);
    Ok(View::new(format!("Remove the group {}", group.name)).above(html! {
        p {
            "Its members have to be stopped first: as long as one works, nothing is removed. The log is no \
             longer kept for it then."
        }
        (form::confirm(&visit, &action, &question, "Remove it", &back, fields))
    }))
}

fn positions(count: usize) -> String {
    if count == 1 { "1 position".to_owned() } else { format!("{count} positions") }
}

/// What of the group is removed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RemoveForm {
    source: String,
}

/// Removes it.
pub(crate) async fn remove(
    visit: Visit,
    path: PathParts,
    Form(given): Form<RemoveForm>,
) -> Result<Done, Problem> {
    let group = path.get("group");
    visit.ask_everywhere(&["groups", group]).query("source", &given.source).delete().await?;
    let said = match given.source.as_str() {
        "" => format!("The group {group} was removed."),
        source => format!("The position of {group} in {source} was removed."),
    };
    Ok(Done::new(visit.link(&["groups"]), said))
}
