//! What else concerns a handler: the limits that its events need a place of, and whether programs
//! lease them.

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::{number, table};
use crate::page::time::{length, moment};
use crate::page::visit::Visit;
use crate::resources::limits::wire::{LimitJson, OnFullJson, RateJson};
use crate::resources::pulled::wire::PulledHandlerJson;

/// What the operator's limit of a handler counts.
const OF_ALL: &str = "its events on all canvases";

/// The limits of a handler and its canvas, and its registration as a pulled one.
pub(super) struct Surroundings {
    /// Each with what it counts.
    limits: Vec<(&'static str, LimitJson)>,
    pulled: Option<PulledHandlerJson>,
}

impl Surroundings {
    /// As far as the person may read them.
    pub(super) async fn read(visit: &Visit, module: &str, name: &str) -> Result<Self, Problem> {
        let pulled = visit.ask(&["handlers", module, name, "pull"]).shared::<PulledHandlerJson>();
        if !visit.may(Scope::Read) {
            return Ok(Self { limits: Vec::new(), pulled: if_any(pulled.await)? });
        }
        let of_handler = format!("handler:{module}/{name}");
        let own = visit.ask(&["limits", &of_handler]).shared::<LimitJson>();
        let of_canvas = visit.ask(&["limits", "canvas"]).shared::<LimitJson>();
        let of_all = async {
            match visit.may_everywhere(Scope::Read) {
                true => if_any(visit.ask_everywhere(&["limits", &of_handler]).shared::<LimitJson>().await),
                false => Ok(None),
            }
        };
        let (pulled, own, of_canvas, of_all) = tokio::join!(pulled, own, of_canvas, of_all);
        let found = [
            ("its events", if_any(own)?),
            ("the events of the canvas", if_any(of_canvas)?),
            (OF_ALL, of_all?),
        ];
        let limits = found.into_iter().filter_map(|(what, limit)| Some((what, limit?))).collect();
        Ok(Self { limits, pulled: if_any(pulled)? })
    }

    /// That no worker runs its events, if that is so.
    pub(super) fn pulled(&self) -> Markup {
        html! {
            @if let Some(pulled) = &self.pulled {
                p {
                    "Programs lease its events, since " (moment(pulled.created_at)) " by " (pulled.created_by)
                    ": no worker and no target gets any."
                }
            }
        }
    }

    pub(super) fn limits(&self, visit: &Visit) -> Markup {
        html! {
            @if !self.limits.is_empty() {
                h2 { "Limits" }
                (table("Limits", &["Counts", "Allows", "When it is full", "By"], html! {
                    @for (what, limit) in &self.limits {
                        tr {
                            td {
                                // That of all canvases has no page among those of a canvas.
                                @if *what == OF_ALL { (what) }
                                @else { a href=(visit.link(&["limits", &limit.name])) { (what) } }
                            }
                            td { (allowed(limit)) }
                            td { (when_full(limit.on_full)) }
                            td { (limit.updated_by) }
                        }
                    }
                }))
            }
        }
    }
}

/// What was found, or nothing if it does not exist.
fn if_any<T>(answer: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.kind == Kind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn allowed(limit: &LimitJson) -> String {
    let at_once = limit.concurrency.map(|most| format!("{} at a time", number(most)));
    let starts = limit.rate.map(|RateJson { count, period_s, burst }| {
        let burst = burst.filter(|burst| *burst > 1).map(|burst| format!(", {} at once", number(burst)));
        format!("{} starts in {}{}", number(count), length(period_s), burst.unwrap_or_default())
    });
    [at_once, starts].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn when_full(on_full: OnFullJson) -> &'static str {
    match on_full {
        OnFullJson::Wait => "events wait",
        OnFullJson::Drop => "events are cancelled",
        OnFullJson::Replace => "the oldest that waits is cancelled",
        OnFullJson::Cancel => "the one that has run longest is cancelled",
    }
}
