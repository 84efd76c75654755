//! The last attempts in the browser: on the page of a target they are its last answers.

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, number, table};
use crate::page::time::{length, moment};
use crate::page::visit::Visit;
use crate::resources::attempts::wire::{HandlerAttemptJson, LastAttemptsJson};
use crate::resources::events::page::event_link;

/// How much of an error is shown; the event's page has all of it.
const ERROR_CHARS: usize = 200;

/// The last answers of a target. For those who may read the whole canvas, since they tell of its
/// events.
pub(crate) async fn of_target(visit: &Visit, [module, name, modifier]: [&str; 3]) -> Result<Markup, Problem> {
    if !visit.may(Scope::Read) {
        return Ok(html! {});
    }
    let ask = visit.ask(&["attempts"]).query("module", module).query("name", name);
    let last: LastAttemptsJson = ask.query("modifier", modifier).query("limit", 20).shared().await?;
    let head = ["When", ">Took", "What came of it", "Status", "Event", ">Attempt", "Error"];
    Ok(html! {
        h2 { "Last answers" }
        @if last.attempts.is_empty() {
            p { "It has refused nothing lately, and none of its events is kept." }
        } @else {
            (table("Last answers", &head, html! { @for attempt in &last.attempts { (row(visit, attempt)) } }))
        }
        p.quiet {
            "Attempts that failed or were too early, and those that ended an event that is kept. A plain \
             completion is not noted."
            @if last.more { " There may be more, which the pages of the events show." }
        }
    })
}

fn row(visit: &Visit, attempt: &HandlerAttemptJson) -> Markup {
    let tone = match attempt.outcome.as_str() {
        "completed" => Tone::Calm,
        "postponed" | "cancelled" => Tone::Waiting,
        _ => Tone::Alarm,
    };
    let error: Option<String> = attempt.error.as_ref().map(|error| error.chars().take(ERROR_CHARS).collect());
    html! {
        tr {
            td { (moment(attempt.started_at)) }
            td.number { (length(attempt.took_s)) }
            td { (badge(tone, &attempt.outcome)) }
            td { @match attempt.status { Some(status) => (status), None => "–" } }
            td { (event_link(visit, attempt.event)) }
            td.number { (number(attempt.number)) }
            td.words { (error.as_deref().unwrap_or("–")) }
        }
    }
}
