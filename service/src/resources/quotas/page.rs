//! Quotas in the browser: how much of each is in use, and setting one.

use axum::Form;
use axum::http::Method;
use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::ask::Ask;
use crate::page::chart::bar;
use crate::page::form;
use crate::page::parts::{Tone, badge, number, pager, table};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::quotas::wire::{Quota, SetQuota};
use crate::resources::wire::List;

/// What each quota counts. One of a later release has no words.
const MEANINGS: [(&str, &str); 18] = [
    ("events", "events that wait, run, are dead or are kept, with their copies in queues"),
    ("event-bytes", "bytes of their values, options, errors and results"),
    ("objects", "objects on which events were emitted"),
    ("object-bytes", "bytes of their states"),
    ("chosen-ids", "chosen ids that are remembered"),
    (
        "idempotency-keys",
        "idempotency keys with their answers, unique keys that outlive their events, names of batches, and keys of \
         limits in use",
    ),
    ("log-streams", "streams of the log; an entity has two"),
    ("log-bytes", "bytes of payloads and metadata in these streams"),
    ("entities", "entities"),
    ("entity-events", "events that were sent to entities and are not processed yet"),
    ("crons", "crons"),
    ("cron-ticks", "events a minute that all crons together may emit"),
    ("keys", "API keys, also revoked and expired ones that are kept"),
    ("targets", "handlers that are reached over HTTP"),
    ("hooks", "hooks, which receive webhooks"),
    ("batches", "batches that are not over"),
    ("rules", "pauses and blocks"),
    ("audit-lines", "lines of the record"),
];

/// All quotas of the canvas.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["quotas"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let mut quotas: List<Quota> = ask.shared().await?;
    quotas.items.sort_by(|one, other| share(other).total_cmp(&share(one)));
    let about = html! {
        p {
            "What the canvas may store, and how much of that is in use; the fullest come first. What exceeds \
             a quota is refused, and nothing that exists is removed."
        }
    };
    Ok(View::new("Quotas").above(about).live(listed(&visit, &quotas)))
}

/// How much of a quota is used: 1 is all of it.
fn share(quota: &Quota) -> f64 {
    match (quota.used, quota.limit) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        (used, limit) => used as f64 / limit as f64,
    }
}

fn listed(visit: &Visit, quotas: &List<Quota>) -> Markup {
    let may_set = visit.may_everywhere(Scope::Admin);
    let mut head = vec!["Quota", "What it counts", "In use", ">Used", ">Of", "State"];
    head.extend(may_set.then_some("What to do"));
    html! {
        (table("Quotas", &head, html! {
            @for quota in &quotas.items {
                tr {
                    td { (quota.quota) @if quota.set { " " span.tag { "set for this canvas" } } }
                    td.words { (meaning(&quota.quota)) }
                    td { (used(quota)) }
                    td.number { (amount(quota, quota.used)) }
                    td.number { (amount(quota, quota.limit)) }
                    td { (state_badge(quota)) }
                    @if may_set { td { a href=(visit.link(&["quotas", &quota.quota])) { "Set" } } }
                }
            }
        }))
        (pager(visit, quotas.next_cursor.as_deref()))
    }
}

fn meaning(quota: &str) -> &'static str {
    MEANINGS.iter().find(|(name, _)| *name == quota).map_or("", |(_, words)| words)
}

fn used(quota: &Quota) -> Markup {
    let tone = tone(quota).0;
    let words = format!("{} of {} used", amount(quota, quota.used), amount(quota, quota.limit));
    bar(quota.used as f64, quota.limit as f64, tone, &words)
}

fn state_badge(quota: &Quota) -> Markup {
    let (tone, words) = tone(quota);
    badge(tone, &words)
}

fn tone(quota: &Quota) -> (Tone, String) {
    let percent = format!("{:.0} % used", (share(quota) * 100.0).min(100.0).floor());
    match share(quota) {
        share if share >= 1.0 => (Tone::Alarm, "used up".to_owned()),
        share if share >= 0.8 => (Tone::Waiting, percent),
        _ => (Tone::Calm, percent),
    }
}

/// A number of what the quota counts: bytes in the unit that one reads.
fn amount(quota: &Quota, count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(size, _)| quota.quota.ends_with("-bytes") && count >= *size);
    match unit {
        Some((size, unit)) => format!("{:.1}\u{202f}{unit}", count as f64 / *size as f64),
        None => number(count),
    }
}

/// One quota, to be set or unset.
pub(crate) async fn ask_set(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let name = path.get("quota");
    let quota: Quota = visit.ask(&["quotas", name]).get().await?;
    let own = visit.link(&["quotas", name]);
    let fields = html! {
        (form::text("limit", "The canvas may have", &quota.limit.to_string(), "5000000"))
        button type="submit" { "Set the quota" }
    };
    Ok(View::new(format!("Quota {name}")).above(html! {
        p { "It counts " (meaning(name)) ": " (number(quota.used)) " now." }
        (used(&quota))
        p { "What exists is kept, also if it is more. Every process knows of a change within a minute." }
        (form::change(&visit, &own, fields))
        p.actions {
            @if quota.set {
                (form::button(&visit, &visit.link(&["quotas", name, "unset"]), "Back to the default"))
            }
            a.button href=(visit.link(&["quotas"])) { "Keep things as they are" }
        }
    }))
}

/// What the canvas may have.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct SetForm {
    limit: String,
}

/// Sets a quota of this canvas.
pub(crate) async fn set(visit: Visit, path: PathParts, Form(given): Form<SetForm>) -> Result<Done, Problem> {
    let limit = given.limit.trim().parse::<u64>();
    let limit = limit.map_err(|_| Problem::bad_request("a quota is a whole number, such as 5000000"))?;
    let quota = path.get("quota");
    ask(&visit, quota).tell(Method::PUT, &SetQuota { limit }).await?;
    let said = format!("The quota {quota} of this canvas is {} now.", number(limit));
    Ok(Done::new(visit.link(&["quotas"]), said))
}

/// Restores the default.
pub(crate) async fn unset(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let quota = path.get("quota");
    ask(&visit, quota).delete().await?;
    Ok(Done::new(visit.link(&["quotas"]), format!("The quota {quota} is the default again.")))
}

fn ask(visit: &Visit, quota: &str) -> Ask {
    visit.ask_everywhere(&["quotas", &visit.canvas().0.to_string(), quota])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(name: &str, used: u64, limit: u64) -> Quota {
        Quota { quota: name.to_owned(), limit, set: false, used }
    }

    #[test]
    fn a_quota_says_how_full_it_is() {
        for (used, limit, words) in [
            (0, 0, "0 % used"),
            (1, 0, "used up"),
            (799, 1000, "79 % used"),
            (10, 10, "used up"),
            (11, 10, "used up"),
        ] {
            assert_eq!(tone(&quota("events", used, limit)).1, words, "{used} of {limit}");
        }
        assert_eq!(amount(&quota("log-bytes", 0, 0), 3 << 29), "1.5\u{202f}GiB");
        assert_eq!(amount(&quota("log-bytes", 0, 0), 1023), "1\u{202f}023");
        assert_eq!(amount(&quota("events", 0, 0), 1 << 20), "1\u{202f}048\u{202f}576");
    }
}
