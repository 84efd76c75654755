//! Setting and removing limits in the browser.

use axum::Form;
use maud::{Markup, html};
use serde::Deserialize;

use super::owner::{Owner, allowed};
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form as forms;
use crate::page::parts::number;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::limits::wire::{
    LimitJson, LimitUseJson, OnFullJson, PutLimit, PutLimitAnswer, RateJson,
};
use crate::resources::wire::List;

/// What happens to an event that would start while the limit is full.
const ON_FULL: [(&str, &str, OnFullJson); 4] = [
    ("wait", "it waits", OnFullJson::Wait),
    ("drop", "it is cancelled", OnFullJson::Drop),
    ("replace", "the oldest that waits is cancelled", OnFullJson::Replace),
    ("cancel", "the oldest that runs is cancelled", OnFullJson::Cancel),
];

/// The fields of a limit: a new one, or one as it is. Its name is asked for unless it is given.
pub(super) fn form(visit: &Visit, owner: Owner, name: &str, limit: Option<&LimitJson>) -> Markup {
    let shown = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
    let concurrency = shown(limit.and_then(|limit| limit.concurrency));
    let waiting_max = shown(limit.and_then(|limit| limit.waiting_max));
    let rate = limit.and_then(|limit| limit.rate);
    let on_full = limit.map_or(OnFullJson::Wait, |limit| limit.on_full);
    let chosen = ON_FULL.iter().find(|(.., of)| *of == on_full).map_or("wait", |(value, ..)| *value);
    let choices = ON_FULL.map(|(value, words, _)| (value, words));
    let period = rate.map(|rate| rate.period_s.to_string()).unwrap_or_default();
    let fields = html! {
        @if name.is_empty() {
            (forms::text("name", "For: canvas, handler:MODULE/NAME, a key, a family", "", "customer"))
        } @else {
            (forms::hidden("name", name))
        }
        (forms::text("concurrency", "At most so many at a time", &concurrency, "any number"))
        (forms::text("rate_count", "So many starts", &shown(rate.map(|rate| rate.count)), "any number"))
        (forms::text("rate_period_s", "in so many seconds", &period, "60"))
        (forms::text("rate_burst", "of which at once", &shown(rate.and_then(|rate| rate.burst)), "1"))
        (forms::select("on_full", "An event that finds no room", chosen, &choices))
        (forms::text("waiting_max", "Refuse emits while so many wait", &waiting_max, "never"))
        button type="submit" { "Set the limit" }
    };
    forms::change(visit, &owner.link(visit, &["limits"]), fields)
}

/// Asks what a key, a family or a handler is to be limited to, whether or not it is by now.
pub(crate) async fn ask_set(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let (owner, name) = (Owner::Canvas, path.get("limit"));
    let of_family = async {
        match name.split_once(':').filter(|_| !name.starts_with("handler:")) {
            Some((family, _)) => found(&visit, family).await,
            None => Ok(None),
        }
    };
    let (own, of_family) = tokio::join!(found(&visit, name), of_family);
    let (own, of_family) = (own?, of_family?);
    Ok(View::new(format!("Limit {name}")).above(html! {
        p {
            @match (&own, &of_family) {
                (Some(own), _) if own.default => {
                    "It has the operator's default, which allows " (allowed(own))
                    ". One of this canvas takes the place of that."
                }
                (Some(own), _) => { "It has a limit of its own, which allows " (allowed(own)) "." }
                (None, Some(family)) => {
                    "It has the limit of its family, " (family.name) ", which allows " (allowed(family))
                    ". One of its own takes the place of that."
                }
                (None, None) => { "It has no limit of its own, and takes what others leave." }
            }
        }
        p {
            "What runs goes on. From then on, no more of its events start than you allow, and the places "
            "that this leaves go to others."
        }
        (form(&visit, owner, name, own.as_ref()))
        p.actions { a.button href=(visit.link(&["limits"])) { "All limits" } }
    }))
}

/// The limit of this name, if there is one.
async fn found(visit: &Visit, name: &str) -> Result<Option<LimitJson>, Problem> {
    match visit.ask(&["limits", name]).get::<LimitJson>().await {
        Ok(limit) => Ok(Some(limit)),
        Err(problem) if problem.kind == Kind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// A limit as it is typed. An empty field stands for no bound.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct LimitForm {
    name: String,
    concurrency: String,
    rate_count: String,
    rate_period_s: String,
    rate_burst: String,
    on_full: String,
    waiting_max: String,
}

impl LimitForm {
    fn read(&self) -> Result<PutLimit, Problem> {
        let on_full = ON_FULL.iter().find(|(value, ..)| *value == self.on_full).map(|(.., of)| *of);
        let count = whole(&self.rate_count, "the number of starts")?;
        let burst = whole(&self.rate_burst, "how many start at once")?;
        let rate = match (count, self.rate_period_s.trim()) {
            (None, "") if burst.is_none() => None,
            (Some(count), seconds) if !seconds.is_empty() => {
                Some(RateJson { count, period_s: seconds_of(seconds)?, burst })
            }
            _ => {
                let words =
                    "a rate is a number of starts and the seconds in which they may happen: give both";
                return Err(Problem::bad_request(words));
            }
        };
        Ok(PutLimit {
            concurrency: whole(&self.concurrency, "how many run at a time")?,
            rate,
            on_full,
            waiting_max: whole(&self.waiting_max, "how many may wait")?,
        })
    }
}

/// A whole number, unless nothing was typed.
fn whole(text: &str, what: &str) -> Result<Option<u32>, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse::<u32>();
    number
        .map(Some)
        .map_err(|_| Problem::bad_request(format!("{what} is a whole number, such as 5, or is left empty")))
}

fn seconds_of(text: &str) -> Result<f64, Problem> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    seconds
        .ok_or_else(|| Problem::bad_request("the period of a rate is a number of seconds, such as 60 or 0.5"))
}

/// Sets a limit, or replaces it.
pub(crate) async fn put(visit: Visit, Form(given): Form<LimitForm>) -> Result<Done, Problem> {
    let owner = Owner::of(&visit);
    let name = given.name.trim();
    if name.is_empty() {
        return Err(Problem::bad_request(
            "name what is limited: canvas, handler:MODULE/NAME, a key, or a family",
        ));
    }
    let ask = owner.ask(&visit, &["limits", name]);
    let PutLimitAnswer { new, limit } = ask.put(&given.read()?).await?;
    let done = if new { "is set" } else { "was replaced" };
    let said = format!("The limit {} {done}: {}.", limit.name, allowed(&limit));
    Ok(Done::new(owner.link(&visit, &["limits", &limit.name]), said))
}

/// Asks before a limit is removed, with what it holds back.
pub(crate) async fn ask_remove(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (owner, name) = (Owner::of(&visit), path.get("limit"));
    let limit: LimitJson = owner.ask(&visit, &["limits", name]).get().await?;
    let ask = owner.ask(&visit, &["limits", name, "uses"]).query("limit", 1000);
    let uses: List<LimitUseJson> = ask.get().await?;
    let question = format!("Remove the limit {name}, which allows {}? {}", allowed(&limit), let_go(&uses));
    let (action, back) =
        (owner.link(&visit, &["limits", name, "remove"]), owner.link(&visit, &["limits", name]));
    Ok(View::new(format!("Remove the limit {name}")).above(html! {
        @if owner == Owner::Canvas { p { "If the operator has a default of this name, that counts again." } }
        (forms::confirm(&visit, &action, &question, "Remove the limit", &back, html! {}))
    }))
}

/// What the removal of a limit lets go.
fn let_go(uses: &List<LimitUseJson>) -> String {
    let waiting: u64 = uses.items.iter().map(|used| used.waiting).sum();
    let is_least = uses.next_cursor.is_some() || uses.items.iter().any(|used| used.waiting >= 10_000);
    let at_least = if is_least { "at least " } else { "" };
    match waiting {
        0 => "No event waits for it.".to_owned(),
        1 => format!("The {at_least}1 event that waits for it may then start."),
        _ => format!("The {at_least}{} events that wait for it may then start.", number(waiting)),
    }
}

/// Removes it.
pub(crate) async fn remove(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let (owner, name) = (Owner::of(&visit), path.get("limit"));
    owner.ask(&visit, &["limits", name]).delete().await?;
    Ok(Done::new(owner.link(&visit, &["limits"]), format!("The limit {name} was removed.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(concurrency: &str, rate: [&str; 3]) -> Result<PutLimit, Problem> {
        let [count, period, burst] = rate.map(str::to_owned);
        let given = LimitForm {
            concurrency: concurrency.to_owned(),
            rate_count: count,
            rate_period_s: period,
            rate_burst: burst,
            on_full: "drop".to_owned(),
            ..LimitForm::default()
        };
        given.read()
    }

    #[test]
    fn what_is_left_empty_has_no_bound() {
        let five = PutLimit { concurrency: Some(5), on_full: Some(OnFullJson::Drop), ..PutLimit::default() };
        assert_eq!(read(" 5 ", [""; 3]).unwrap(), five);
        let rate = RateJson { count: 100, period_s: 0.5, burst: None };
        assert_eq!(read("5", ["100", "0.5", ""]).unwrap(), PutLimit { rate: Some(rate), ..five });
    }

    #[test]
    fn half_a_rate_and_what_is_no_number_are_refused() {
        for (concurrency, rate, words) in [
            ("five", [""; 3], "how many run at a time is a whole number"),
            ("-1", [""; 3], "whole number"),
            ("5", ["100", "", ""], "give both"),
            ("5", ["", "60", ""], "give both"),
            ("5", ["", "", "2"], "give both"),
            ("5", ["100", "a minute", ""], "a number of seconds"),
            ("5", ["100", "inf", ""], "a number of seconds"),
        ] {
            let refused = read(concurrency, rate).unwrap_err();
            assert!(refused.detail().contains(words), "{concurrency} {rate:?}: {}", refused.detail());
        }
    }
}
