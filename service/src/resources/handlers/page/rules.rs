//! What stops a handler, a canvas or everything, as pages show it: the rules in force, the form
//! that makes one, and what came of it in words. Whose rules they are is not known here.

use chrono::{DateTime, NaiveDateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, number, table};
use crate::page::time::{appointed, exact, in_utc, moment};
use crate::page::visit::Visit;
use crate::resources::handlers::wire::{Lifted, RuleJson, RuleKind, RuleReachJson, StopRequest, Stopped};

/// How long something may be stopped, in seconds and in words.
const LENGTHS: [(&str, &str); 9] = [
    ("", "until somebody lifts it"),
    ("900", "15 minutes"),
    ("3600", "1 hour"),
    ("7200", "2 hours"),
    ("14400", "4 hours"),
    ("28800", "8 hours"),
    ("86400", "1 day"),
    ("259200", "3 days"),
    ("604800", "1 week"),
];

/// Why to stop something, and until when.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct StopForm {
    reason: String,
    /// Seconds.
    lasting: String,
    until: String,
    /// The end that the form was shown with: a length that is chosen takes its place.
    shown_until: String,
}

impl StopForm {
    pub(crate) fn read(&self) -> Result<StopRequest, Problem> {
        let lasting = given(&self.lasting).map(|text| {
            text.parse::<f64>().map_err(|_| Problem::bad_request("choose for how long from the list"))
        });
        let for_s = lasting.transpose()?;
        let shown = given(&self.shown_until).and_then(|shown| written(shown).ok());
        let until = given(&self.until).map(written).transpose()?;
        let until = until.filter(|until| for_s.is_none() || Some(*until) != shown);
        if until.is_some() && for_s.is_some() {
            return Err(Problem::bad_request("choose a length or write an exact time, not both"));
        }
        let reason = given(&self.reason).map(str::to_owned);
        Ok(StopRequest { reason, until, for_s })
    }
}

fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// A moment as people write it: in UTC, unless it says its zone.
fn written(text: &str) -> Result<DateTime<Utc>, Problem> {
    let forms = ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
    let plain = || forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    let moment = text.parse::<DateTime<Utc>>().ok().or_else(|| plain().map(|moment| moment.and_utc()));
    moment.ok_or_else(|| Problem::bad_request("write the time like 2030-01-31 08:00, in UTC"))
}

/// The form that stops something, or changes the rule that stops it already. `yes` is the button's
/// text, and `back` leads away.
pub(crate) fn stop(
    visit: &Visit,
    action: &str,
    yes: &str,
    back: &str,
    standing: Option<&RuleJson>,
) -> Markup {
    let reason = standing.and_then(|rule| rule.reason.as_deref()).unwrap_or_default();
    let until = standing.and_then(|rule| rule.until).map(exact).unwrap_or_default();
    form::change(
        visit,
        action,
        html! {
            (form::text("reason", "Reason, for others to read", reason, "mail server down"))
            (form::select("lasting", "For how long", "", &LENGTHS))
            (form::moment("until", "Or until an exact time", &until))
            (form::hidden("shown_until", &until))
            p.ends data-ends="until" data-instead="lasting" hidden { span { "Or until" } }
            p.choices { button.main type="submit" { (yes) } " " a.button href=(back) { "Leave it as it is" } }
        },
    )
}

/// The rule of a kind that stops exactly this, if it is in force.
pub(crate) fn standing(rules: &[RuleJson], kind: RuleKind, stops: RuleReachJson) -> Option<&RuleJson> {
    rules.iter().find(|rule| (rule.kind, rule.stops) == (kind, stops))
}

/// The rules in force, with author and end.
pub(crate) fn listed(visit: &Visit, rules: &[RuleJson]) -> Markup {
    table(
        "Rules in force",
        &["Rule", "Stops", "Reason", "By", "Since", "Until"],
        html! {
            @for rule in rules {
                tr {
                    td { (state_badge(rule.kind)) }
                    td { (reach(visit, rule.stops)) }
                    td.words { (rule.reason.as_deref().unwrap_or("–")) }
                    td { (rule.created_by) }
                    td { (moment(rule.created_at)) }
                    td { (end(rule)) }
                }
            }
        },
    )
}

/// When a rule ends.
pub(crate) fn end(rule: &RuleJson) -> Markup {
    rule.until.map_or_else(|| html! { "somebody lifts it" }, appointed)
}

fn reach(visit: &Visit, stops: RuleReachJson) -> Markup {
    let wide = |words: &str| {
        html! {
            @if visit.may(Scope::Read) { a href=(visit.link(&["switches"])) { (words) } }
            @else { (words) }
        }
    };
    match stops {
        RuleReachJson::Handler => html! { "this handler" },
        RuleReachJson::Canvas => wide("the whole canvas"),
        RuleReachJson::Everything => wide("everything"),
    }
}

/// That something is stopped, in a word with its sign.
pub(crate) fn state_badge(kind: RuleKind) -> Markup {
    let tone = match kind {
        RuleKind::Pause => Tone::Waiting,
        RuleKind::Block => Tone::Alarm,
    };
    badge(tone, state(kind))
}

/// What something is under a rule.
fn state(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Pause => "paused",
        RuleKind::Block => "blocked",
    }
}

fn word(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Pause => "pause",
        RuleKind::Block => "block",
    }
}

/// What was stopped, in words.
pub(crate) fn stopped(subject: &str, answer: &Stopped) -> String {
    let state_now = state(answer.rule.kind);
    let end = match answer.rule.until {
        Some(until) => format!("until {}", in_utc(until)),
        None => "until somebody lifts it".to_owned(),
    };
    let again = if answer.new { "" } else { " It was already; reason and end were replaced." };
    let also = answer.also.map(|other| format!(" It is {} as well.", state(other))).unwrap_or_default();
    format!("{subject} is {state_now} {end}. What runs goes on to its end, and all else waits.{again}{also}")
}

/// What was lifted, in words.
pub(crate) fn lifted(subject: &str, kind: RuleKind, answer: &Lifted) -> String {
    let rule = word(kind);
    let first = match (answer.lifted, answer.woken) {
        (false, _) => format!("There was no {rule} of {subject}."),
        (true, 0) => format!("The {rule} of {subject} is lifted."),
        (true, woken) => {
            let woken = number(woken as u64);
            format!("The {rule} of {subject} is lifted, and waiting events were woken: {woken}.")
        }
    };
    let waking = if answer.waking { " More are woken now." } else { "" };
    let still = answer.still.map(|other| format!(" It is still {}.", state(other))).unwrap_or_default();
    let under = answer.under.as_ref().map(|wide| {
        let what = match wide.stops {
            RuleReachJson::Handler => "the handler",
            RuleReachJson::Canvas => "the whole canvas",
            RuleReachJson::Everything => "everything",
        };
        format!(" Its events wait all the same: {what} is {}.", state(wide.kind))
    });
    format!("{first}{waking}{still}{}", under.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "2030-02-28 08:00:00";

    fn read(lasting: &str, until: &str) -> Result<(Option<f64>, Option<String>), String> {
        let [reason, lasting, until, shown_until] = ["  ", lasting, until, SHOWN].map(str::to_owned);
        let form = StopForm { reason, lasting, until, shown_until };
        let request = form.read().map_err(|problem| problem.detail().to_owned())?;
        assert_eq!(request.reason, None, "blanks are no reason");
        Ok((request.for_s, request.until.map(|until| until.to_rfc3339())))
    }

    #[test]
    fn an_end_is_a_length_or_a_moment() {
        assert_eq!(read("", ""), Ok((None, None)));
        for (seconds, _) in &LENGTHS[1..] {
            assert_eq!(read(seconds, ""), Ok((Some(seconds.parse().unwrap()), None)));
        }
        let eight = "2030-01-31T08:00:00+00:00".to_owned();
        for text in [
            "2030-01-31 08:00",
            " 2030-01-31 08:00:00 ",
            "2030-01-31T08:00",
            "2030-01-31T08:00:00Z",
            "2030-01-31T09:00:00+01:00",
        ] {
            assert_eq!(read("", text), Ok((None, Some(eight.clone()))), "{text}");
        }
        assert_eq!(read("900", SHOWN), Ok((Some(900.0), None)), "in place of the end that was shown");
        assert_eq!(read("", SHOWN), Ok((None, Some("2030-02-28T08:00:00+00:00".to_owned()))));
        for (lasting, until, words) in [
            ("", "tomorrow", "write the time like 2030-01-31 08:00"),
            ("", "2030-02-31 08:00", "write the time like"),
            ("long", "", "choose for how long"),
            ("900", "2030-01-31 08:00", "not both"),
        ] {
            let refused = read(lasting, until).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let moment = "2030-01-31T08:00:30Z".parse().unwrap();
        assert_eq!(written(&exact(moment)).unwrap(), moment);
    }
}
