//! What is done with events that were selected in the list: one by one, since the API takes no list
//! of ids.

use std::collections::BTreeSet;

use axum::Form;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use uuid::Uuid;

use super::acts::split;
use super::event_link;
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{events, table};
use crate::page::view::{Done, View};
use crate::page::visit::Visit;
use crate::resources::events::wire::SetTags;

/// How many events are done at a time: as many as a page of the list has.
const MOST: usize = 100;

/// Which events were selected, and for what.
struct Selection {
    act: Act,
    ids: BTreeSet<Uuid>,
    tags: Vec<String>,
    /// The filter of the list that they were selected in.
    from: Vec<(String, String)>,
}

/// What is done with each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Cancel,
    Stop,
    RunNow,
    Tags,
}

impl Act {
    const ALL: [Self; 4] = [Self::Cancel, Self::Stop, Self::RunNow, Self::Tags];

    fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Stop => "stop",
            Self::RunNow => "run-now",
            Self::Tags => "tags",
        }
    }

    fn question(self, events: &str) -> String {
        match self {
            Self::Cancel => format!("Cancel {events}? They are deleted. Those that run are left alone."),
            Self::Stop => {
                format!("Cancel {events}, also those that run? Their handlers are told to stop.")
            }
            Self::RunNow => format!("Run {events} now? They are due at once."),
            Self::Tags => format!("Replace the tags of {events}? Without any, they have none."),
        }
    }

    /// What was done with them.
    fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Stop => "cancelled, or told to stop",
            Self::RunNow => "made due",
            Self::Tags => "given these tags",
        }
    }
}

impl Selection {
    fn read(pairs: &[(String, String)]) -> Result<Self, Problem> {
        let first = |name: &'static str| all(pairs, name).next().unwrap_or_default();
        let act = Act::ALL.into_iter().find(|act| act.word() == first("act"));
        let act = act.ok_or_else(|| Problem::bad_request("choose what to do with the events"))?;
        let ids: Result<BTreeSet<Uuid>, _> = all(pairs, "id").map(str::parse::<Uuid>).collect();
        let ids =
            ids.map_err(|_| Problem::bad_request("an event's id is a uuid, as its emit returned it"))?;
        if ids.is_empty() || ids.len() > MOST {
            let words = format!("select 1 to {MOST} events of the list: go back, and tick them");
            return Err(Problem::bad_request(words));
        }
        let from = url::form_urlencoded::parse(first("from").as_bytes()).into_owned().collect();
        Ok(Self { act, ids, tags: split(first("tags")), from })
    }

    fn back(&self, visit: &Visit) -> String {
        let pairs: Vec<_> = self.from.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        visit.link_with(&["events"], &pairs)
    }

    fn hidden(&self) -> Markup {
        let mut from = url::form_urlencoded::Serializer::new(String::new());
        let from = from.extend_pairs(&self.from).finish();
        html! {
            (form::hidden("act", self.act.word()))
            (form::hidden("from", &from))
            @for id in &self.ids { (form::hidden("id", &id.to_string())) }
        }
    }

    async fn act(&self, visit: &Visit, id: Uuid) -> Result<(), Problem> {
        let id = id.to_string();
        match self.act {
            Act::Cancel => visit.ask(&["events", &id, "cancel"]).order(Method::POST).await,
            Act::Stop => {
                visit.ask(&["events", &id, "cancel"]).query("running", true).order(Method::POST).await
            }
            Act::RunNow => visit.ask(&["events", &id, "run-now"]).order(Method::POST).await,
            Act::Tags => {
                let tags = SetTags { tags: self.tags.clone() };
                visit.ask(&["events", &id, "tags"]).tell(Method::PUT, &tags).await
            }
        }
    }
}

/// The values of a field.
fn all<'p>(pairs: &'p [(String, String)], name: &'static str) -> impl Iterator<Item = &'p str> {
    pairs.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
}

/// Asks before it is done.
pub(crate) async fn ask(visit: Visit) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let selection = Selection::read(&visit.parameters())?;
    let count = selection.ids.len() as u64;
    let question = selection.act.question(&format!("these {}", events(count)).replace("these 1 ", "this "));
    let fields = html! {
        (selection.hidden())
        @if selection.act == Act::Tags {
            (form::text("tags", "Tags, with commas between them", "", "customer:7, late"))
        }
    };
    let action = visit.link(&["events", "selected"]);
    let yes = format!("Yes, {}", events(count));
    let confirm = form::confirm(&visit, &action, &question, &yes, &selection.back(&visit), fields);
    let list = html! {
        h2 { "Which" }
        ul { @for id in &selection.ids { li { (event_link(&visit, *id)) } } }
    };
    Ok(View::new("Selected events").above(confirm).below(list))
}

/// Does it, and says with which it could not be done.
pub(crate) async fn act(visit: Visit, Form(pairs): Form<Vec<(String, String)>>) -> Result<Response, Problem> {
    let selection = Selection::read(&pairs)?;
    let mut failed = Vec::new();
    for id in &selection.ids {
        if let Err(problem) = selection.act(&visit, *id).await {
            problem.log();
            failed.push((*id, problem));
        }
    }
    let done = events((selection.ids.len() - failed.len()) as u64);
    let said = format!("Done: {done} {}.", selection.act.done());
    let back = selection.back(&visit);
    if failed.is_empty() {
        return Ok(Done::new(back, said).into_response());
    }
    let above = html! {
        p { (said) }
        p.trouble role="alert" { "Not done: " (events(failed.len() as u64)) ", which are as they were." }
        p.actions { a.button href=(back) { "Back to the list" } }
    };
    let below = table(
        "Why not",
        &["Event", "Why"],
        html! {
            @for (id, problem) in &failed {
                tr { td { (event_link(&visit, *id)) } td.words { (problem.detail()) } }
            }
        },
    );
    Ok(View::new("Selected events").above(above).below(below).into_response())
}
