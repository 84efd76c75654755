//! A new event in the browser: a form whose fields become the request that any emit sends.

mod read;

use axum::Form;
use axum::response::{IntoResponse, Response};
use maud::html;

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::view::{Done, View};
use crate::page::visit::Visit;
use crate::resources::emit::wire::{EmittedJson, UniqueOutcomeJson};
use read::GivenFields;

const UNTIL: [(&str, &str); 2] = [("", "while it waits"), ("ended", "until it has ended")];

const ON_CONFLICT: [(&str, &str); 2] =
    [("", "keep the event that has the key"), ("replace", "replace it if it waits")];

/// An empty form, or one with what the address has.
pub(crate) async fn show(visit: Visit) -> Result<View, Problem> {
    if !visit.may_on_some(Scope::Emit) {
        let words = "a new event takes the scope `emit`: ask an admin for a key that has it";
        return Err(Problem::new(Kind::Forbidden, words));
    }
    let given = GivenFields::new(visit.parameters());
    Ok(filled(&visit, &given))
}

/// Emits the event, or shows the form again with what is wrong.
pub(crate) async fn emit(visit: Visit, Form(pairs): Form<Vec<(String, String)>>) -> Response {
    let given = GivenFields::new(pairs);
    match emitted(&visit, &given).await {
        Ok(done) => done.into_response(),
        Err(problem) => filled(&visit, &given).refused(&problem).into_response(),
    }
}

async fn emitted(visit: &Visit, given: &GivenFields) -> Result<Done, Problem> {
    let event = given.event(visit.sent_at())?;
    let emitted: EmittedJson = visit.ask(&["events"]).once().post(&event).await?;
    let said = match emitted.outcome {
        Some(UniqueOutcomeJson::Kept) => "Nothing was added: this event has the unique key already.",
        Some(UniqueOutcomeJson::Replaced) => "The event that waited with the unique key was replaced.",
        Some(UniqueOutcomeJson::Postponed) => "The event that waited with the unique key was postponed.",
        Some(UniqueOutcomeJson::Inserted) | None => "The event was emitted.",
    };
    Ok(Done::new(visit.link(&["events", &emitted.id.to_string()]), said))
}

fn filled(visit: &Visit, given: &GivenFields) -> View {
    let text = |name, label, placeholder| form::text(name, label, given.get(name), placeholder);
    let fields = html! {
        (text("name", "Handler", "send-email"))
        (text("module", "Module", "WORKER"))
        (text("due", "Due, if not at once", "10 min"))
        (form::area("value", "Value, as JSON; nothing stands for null", given.get("value"), 10))
        (text("tags", "Tags, with commas between them", "customer:7, late"))
        (text("object", "Object, by which events are ordered", "work:1"))
        details.more open[given.has_more()] {
            summary { "More: unique key, batch, retries, limits" }
            div.fields {
                (text("modifier", "Modifier", "_"))
                (text("batch", "Batch", "import:42"))
                (text("unique_key", "Unique key", "invoice:42"))
                (form::select("unique_until", "The key is taken", given.get("unique_until"), &UNTIL))
                (form::select("on_conflict", "If it is taken", given.get("on_conflict"), &ON_CONFLICT))
                (text("retries", "Retries", "5"))
                (text("delays", "Before the retries", "10 s, 1 min, 1 h"))
                (text("timeout", "Cut off after", "30 s"))
                (text("not_after", "Starts no later than", "in 1 d"))
                (text("keep", "Keep it after its end for", "7 d"))
                (text("limits", "Keys of limits", "customer:7"))
                (form::check("urgent", "Urgent: workers start it first", given.get("urgent") == "true"))
            }
        }
        p.choices { button.main type="submit" { "Emit the event" } }
    };
    let above = html! {
        p.quiet {
            "It is emitted like any other, and runs as soon as it is due. A length is written as "
            code { "10 min" } " or " code { "1 h 30 min" } ", a moment in UTC as "
            code { "2030-01-31T08:00" } "."
        }
        (form::change(visit, &visit.link(&["new-event"]), fields))
    };
    View::new("New event").above(above)
}
