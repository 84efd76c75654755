//! What came of a cron's ticks, as far as it is known: the events that have not ended, those that
//! died, those that are kept, and how many there were in the last day.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use uuid::Uuid;

use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, number, table};
use crate::page::time::moment;
use crate::page::visit::Visit;
use crate::resources::dead_events::wire::DeadEventJson;
use crate::resources::ended_events::wire::EndedEventJson;
use crate::resources::events::page::state_badge;
use crate::resources::events::wire::{EventState, EventSummaryJson};
use crate::resources::handlers::wire::{Handler, RuleKind};
use crate::resources::statistics::wire::StatisticsJson;
use crate::resources::wire::List;

const MODULE: &str = "CRON";
/// How many events of each kind are shown.
const SHOWN: usize = 10;
/// How much of an error is shown; the event's page has all of it.
const ERROR_CHARS: usize = 200;

/// What is known of a cron's events.
pub(super) struct Seen {
    handler: Handler,
    last_day: StatisticsJson,
    unended: List<EventSummaryJson>,
    ended: List<EndedEventJson>,
    dead: List<DeadEventJson>,
}

/// An event, as a row.
struct Row {
    id: Uuid,
    at: DateTime<Utc>,
    state: Markup,
    words: String,
}

impl Seen {
    pub(super) async fn of(visit: &Visit, cron: &str) -> Result<Self, Problem> {
        let events =
            |list: &str| visit.ask(&[list]).query("module", MODULE).query("name", cron).query("limit", SHOWN);
        let handler = visit.ask(&["handlers", MODULE, cron]);
        let last_day = visit.ask(&["handlers", MODULE, cron, "statistics"]).query("step_s", 3600);
        let (handler, last_day, unended, ended, dead) = tokio::join!(
            handler.shared::<Handler>(),
            last_day.shared::<StatisticsJson>(),
            events("events").shared::<List<EventSummaryJson>>(),
            events("ended-events").shared::<List<EndedEventJson>>(),
            events("dead-events").shared::<List<DeadEventJson>>(),
        );
        Ok(Self { handler: handler?, last_day: last_day?, unended: unended?, ended: ended?, dead: dead? })
    }

    pub(super) fn shown(&self, visit: &Visit, cron: &str) -> Markup {
        let rows = self.rows();
        html! {
            h2 { "What came of its ticks" }
            (self.stopped(visit, cron))
            (self.counts())
            @if rows.is_empty() {
                p.quiet { "No event of this cron waits, runs, is dead or is kept." }
            } @else {
                (table("Events of the cron", &["Event", "State", "When", "What came of it"], html! {
                    @for Row { id, at, state, words } in &rows {
                        tr {
                            td { (event_link(visit, *id)) }
                            td { (state) }
                            td { (moment(*at)) }
                            td.words { (words) }
                        }
                    }
                }))
            }
            p.quiet {
                "Events that have completed are deleted, unless their handler keeps them. One that was "
                "emitted ahead of its tick can also be run early, on its own page, which uses up the tick."
            }
        }
    }

    /// What keeps the handler from running.
    fn stopped(&self, visit: &Visit, cron: &str) -> Markup {
        let link = visit.link(&["handlers", MODULE, cron]);
        html! {
            @if let Some(since) = self.handler.unknown_since {
                p { (badge(Tone::Alarm, "no worker knows its handler")) " since " (moment(since))
                    ". Deploy a worker with a function for " code { "CRON/" (cron) } ", or register a target." }
            }
            @for rule in &self.handler.rules {
                p {
                    @match rule.kind {
                        RuleKind::Pause => (badge(Tone::Waiting, "its handler is paused")),
                        RuleKind::Block => (badge(Tone::Alarm, "its handler is blocked")),
                    }
                    " by " (rule.created_by) " " (moment(rule.created_at)) ". Its events wait, and run when the "
                    a href=(link) { "handler" } " may run again."
                }
            }
        }
    }

    fn counts(&self) -> Markup {
        let sum = |counts: &[u64]| number(counts.iter().sum::<u64>());
        let StatisticsJson { emitted, completed, failed, dead, .. } = &self.last_day;
        html! {
            p {
                "In the last day " (sum(emitted)) " events were emitted, " (sum(completed)) " completed, "
                (sum(failed)) " attempts failed, and " (sum(dead)) " events died."
            }
        }
    }

    /// The events, the latest first.
    fn rows(&self) -> Vec<Row> {
        // Copies of its events belong to the queues that they are in.
        let unended = self.unended.items.iter().filter(|event| event.copy_of.is_none()).map(Row::unended);
        let dead = self.dead.items.iter().filter(|event| event.copy_of.is_none()).map(Row::dead);
        let mut rows: Vec<_> = unended.chain(dead).chain(self.ended.items.iter().map(Row::ended)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.at));
        rows
    }
}

impl Row {
    fn unended(event: &EventSummaryJson) -> Self {
        let words = match event.retries {
            0 if event.state == EventState::Delayed => "it is due at its tick".to_owned(),
            0 => "no attempt has ended yet".to_owned(),
            failed => format!("{} attempts failed; the next is at this time", number(failed)),
        };
        Self { id: event.id, at: event.delay_until, state: state_badge(event.state), words }
    }

    fn dead(event: &DeadEventJson) -> Self {
        let error = event.last_error.as_deref().unwrap_or("no error was given");
        let words = format!("died ({}): {}", event.cause, beginning(error));
        Self { id: event.id, at: event.died_at, state: badge(Tone::Alarm, "dead"), words }
    }

    fn ended(event: &EndedEventJson) -> Self {
        let tone = if event.outcome == "failed" { Tone::Alarm } else { Tone::Calm };
        let words = match (&event.error, &event.cancelled_by) {
            (Some(error), _) => beginning(error),
            (None, Some(by)) => format!("cancelled by {by}"),
            (None, None) => "ended".to_owned(),
        };
        Self { id: event.id, at: event.ended_at, state: badge(tone, &event.outcome), words }
    }
}

fn event_link(visit: &Visit, id: Uuid) -> Markup {
    let id = id.to_string();
    html! { a href=(visit.link(&["events", &id])) { code { (id) } } }
}

fn beginning(error: &str) -> String {
    let beginning: String = error.chars().take(ERROR_CHARS).collect();
    if beginning.len() < error.len() { format!("{beginning} …") } else { beginning }
}
