//! Changes of crons: their forms, and what these do.

use axum::Form;
use axum::http::Method;
use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::number;
use crate::page::time::moment_or;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::page::{form, given};
use crate::resources::crons::wire::{CronJson, Missed, PauseCron, PutCron};
use wakeq::internals::in_words;

/// A cron as it is put. It is replaced as a whole, so this has all of it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct CronForm {
    name: String,
    expression: String,
    zone: String,
    modifier: String,
    missed: Missed,
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PauseForm {
    reason: String,
}

/// Whether the person may put crons: these emit events.
fn may_put(visit: &Visit) -> bool {
    visit.may(Scope::Operate) && visit.may(Scope::Emit)
}

/// The form for a new cron.
pub(super) fn new(visit: &Visit) -> Markup {
    html! {
        @if may_put(visit) {
            details { summary { "New cron" } (fields(visit, &visit.link(&["cron"]), None)) }
        }
    }
}

/// The form that changes a cron.
pub(super) fn existing(visit: &Visit, cron: &CronJson) -> Markup {
    html! {
        // The form has the value, and would replace one that is hidden.
        @if may_put(visit) && cron.hidden.is_none() {
            details {
                summary { "Change the cron" }
                p {
                    "What was emitted ahead of its ticks is withdrawn and emitted anew. "
                    "Events that are due still run."
                }
                (fields(visit, &visit.link(&["cron", &cron.name]), Some(cron)))
            }
        }
    }
}

fn fields(visit: &Visit, action: &str, cron: Option<&CronJson>) -> Markup {
    let expression = cron.map_or("", |cron| cron.expression.as_str());
    let zone = cron.map_or("UTC", |cron| cron.zone.as_str());
    let modifier = cron.map_or("_", |cron| cron.modifier.as_str());
    let value = cron.and_then(|cron| cron.value.as_deref()).map_or("null", |value| value.get());
    let missed = match cron.map(|cron| cron.missed).unwrap_or_default() {
        Missed::Skip => "skip",
        Missed::Once => "once",
        Missed::All => "all",
    };
    let policies = [("skip", "skip them"), ("once", "emit the last one"), ("all", "emit all, at most 1,000")];
    let contents = html! {
        @if cron.is_none() { (form::text("name", "Name, also of its handler CRON/name", "", "nightly-report")) }
        (form::text("expression", "Minute, hour, day, month and weekday", expression, "30 8 * * MON-FRI"))
        (form::text("zone", "Time zone", zone, "Europe/Berlin"))
        (form::text("modifier", "Modifier of the handler", modifier, "_"))
        (form::select("missed", "Ticks that were missed", missed, &policies))
        (form::area("value", "Value of each event, in JSON", value, 4))
        button type="submit" { @if cron.is_some() { "Change the cron" } @else { "Make the cron" } }
    };
    form::change(visit, action, contents)
}

/// Makes a cron whose name is free.
pub(crate) async fn create(visit: Visit, Form(form): Form<CronForm>) -> Result<Done, Problem> {
    let name = given::required("the name", &form.name)?;
    match visit.ask(&["cron", name]).get::<CronJson>().await {
        Ok(_) => {
            let words =
                format!("there is a cron {name} already: change it on its page, or choose another name");
            Err(Problem::new(Kind::Conflict, words))
        }
        Err(problem) if problem.kind == Kind::NotFound => sent(&visit, name, &form).await,
        Err(problem) => Err(problem),
    }
}

/// Replaces a cron.
pub(crate) async fn put(visit: Visit, path: PathParts, Form(form): Form<CronForm>) -> Result<Done, Problem> {
    sent(&visit, path.get("cron"), &form).await
}

async fn sent(visit: &Visit, name: &str, form: &CronForm) -> Result<Done, Problem> {
    let new = PutCron {
        expression: form.expression.trim().to_owned(),
        zone: given::text(&form.zone).unwrap_or("UTC").to_owned(),
        value: given::json("the value", &form.value)?,
        modifier: given::text(&form.modifier).map(str::to_owned),
        missed: form.missed,
    };
    let cron: CronJson = visit.ask(&["cron", name]).put(&new).await?;
    let words = in_words(&cron.expression).unwrap_or_else(|| format!("as {} says", cron.expression));
    let still = if cron.paused.is_some() { " It is still paused." } else { "" };
    let said = format!("The cron {} ticks {words} in {}.{still}", cron.name, cron.zone);
    Ok(Done::new(visit.link(&["cron", name]), said))
}

/// Pauses a cron.
pub(crate) async fn pause(
    visit: Visit,
    path: PathParts,
    Form(form): Form<PauseForm>,
) -> Result<Done, Problem> {
    let name = path.get("cron");
    let pause = PauseCron { reason: given::text(&form.reason).map(str::to_owned) };
    visit.ask(&["cron", name, "pause"]).tell(Method::PUT, &pause).await?;
    Ok(Done::new(visit.link(&["cron", name]), "The cron is paused: it does not tick until it is resumed."))
}

/// Resumes a cron.
pub(crate) async fn unpause(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let name = path.get("cron");
    visit.ask(&["cron", name, "pause"]).order(Method::DELETE).await?;
    Ok(Done::new(visit.link(&["cron", name]), "The cron goes on with its next tick."))
}

/// Asks before a cron is deleted.
pub(crate) async fn ask_delete(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let cron: CronJson = visit.ask(&["cron", path.get("cron")]).get().await?;
    let next = cron.next.first().map(|tick| tick.at);
    let question = format!("Delete 1 cron, {}? It does not tick any more.", cron.name);
    let (action, back) = (visit.link(&["cron", &cron.name, "delete"]), visit.link(&["cron", &cron.name]));
    let above = html! {
        p {
            "It has emitted " (number(cron.ticks)) " events; the next tick is " (moment_or(next, "unknown"))
            ". Events that it has emitted ahead of their ticks are withdrawn, and those that are due still run."
        }
        (form::confirm(&visit, &action, &question, "Delete the cron", &back, html! {}))
    };
    Ok(View::new(format!("Delete the cron {}", cron.name)).above(above))
}

/// Deletes it.
pub(crate) async fn delete(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let name = path.get("cron");
    visit.ask(&["cron", name]).delete().await?;
    Ok(Done::new(visit.link(&["cron"]), format!("The cron {name} was deleted.")))
}
