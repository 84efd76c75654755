//! The form of a target: its fields, shown and read.

use std::str::FromStr;

use chrono::SecondsFormat;
use maud::{Markup, html};
use serde::Deserialize;

use crate::http::problem::Problem;
use crate::page::form;
use crate::page::visit::Visit;
use crate::resources::targets::wire::headers::HeadersText;
use crate::resources::targets::wire::keep::KeepJson;
use crate::resources::targets::wire::{OnDeath, Policy, PutTarget, TargetJson};

/// The fields as they are written. Empty numbers stand for the defaults.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct TargetForm {
    modifier: String,
    url: String,
    audience: String,
    retries: String,
    delay_s: String,
    factor: String,
    delay_max_s: String,
    timeout_s: String,
    concurrency: String,
    on_death: String,
    keep_s: String,
    /// Lines of `name: value`.
    headers: String,
    /// Not empty if all headers are to be removed.
    no_headers: String,
    /// When the target that is shown was changed last; empty for a new one.
    changed_at: String,
    /// The names of the headers that it has.
    #[serde(skip)]
    header_names: String,
}

const ON_DEATH: [(&str, &str); 2] =
    [("skip", "later events of its object run"), ("halt", "its object halts until somebody looks")];

impl TargetForm {
    /// For a target that is not registered yet.
    pub(super) fn new() -> Self {
        Self { modifier: "_".to_owned(), ..Self::with(&Policy::default()) }
    }

    /// For a target as it is now.
    pub(super) fn of(target: &TargetJson) -> Self {
        Self {
            modifier: target.modifier.clone(),
            url: target.url.clone(),
            audience: target.audience.clone().unwrap_or_default(),
            changed_at: moment(target),
            header_names: target.header_names.join(", "),
            ..Self::with(&target.policy)
        }
    }

    fn with(policy: &Policy) -> Self {
        Self {
            retries: policy.retries.to_string(),
            delay_s: policy.delay_s.to_string(),
            factor: policy.factor.to_string(),
            delay_max_s: policy.delay_max_s.to_string(),
            timeout_s: policy.timeout_s.to_string(),
            concurrency: policy.concurrency.map(|most| most.to_string()).unwrap_or_default(),
            on_death: match policy.on_death {
                OnDeath::Skip => "skip".to_owned(),
                OnDeath::Halt => "halt".to_owned(),
            },
            keep_s: policy.keep_s.written(|seconds| seconds.to_string()),
            ..Self::default()
        }
    }

    /// The modifier of a new target: `_` for none.
    pub(super) fn modifier(&self) -> &str {
        let modifier = self.modifier.trim();
        if modifier.is_empty() { "_" } else { modifier }
    }

    /// Whether the form was shown with the target as it is now.
    pub(super) fn is_of(&self, target: &TargetJson) -> bool {
        self.changed_at == moment(target)
    }

    pub(super) fn read(&self) -> Result<PutTarget, Problem> {
        let audience = Some(self.audience.trim().to_owned()).filter(|audience| !audience.is_empty());
        let (url, policy, headers) = (self.url.trim().to_owned(), self.policy()?, self.headers()?);
        Ok(PutTarget { url, policy, audience, secret: None, rotate_secret: false, headers })
    }

    fn policy(&self) -> Result<Policy, Problem> {
        let usual = Policy::default();
        let delay_max_s = seconds("Longest delay", &self.delay_max_s)?.unwrap_or(usual.delay_max_s);
        let delay_s = seconds("Delay of the first retry", &self.delay_s)?;
        Ok(Policy {
            retries: number("Retries", &self.retries)?.unwrap_or(usual.retries),
            delay_s: delay_s.unwrap_or_else(|| Policy::usual_delay_s(delay_max_s)),
            factor: number("Factor", &self.factor)?.unwrap_or(usual.factor),
            delay_max_s,
            timeout_s: seconds("Timeout", &self.timeout_s)?.unwrap_or(usual.timeout_s),
            concurrency: number("At a time", &self.concurrency)?,
            on_death: if self.on_death == "halt" { OnDeath::Halt } else { OnDeath::Skip },
            keep_s: kept_for(&self.keep_s)?,
        })
    }

    /// The headers in place of those that the target has; `None` to keep these.
    fn headers(&self) -> Result<Option<HeadersText>, Problem> {
        let lines = self.headers.lines().map(str::trim).filter(|line| !line.is_empty());
        // A value is a secret, so no answer repeats one.
        let pairs = lines.enumerate().map(|(at, line)| match line.split_once(':') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => {
                let words = format!("write each header as `name: value`: number {} has no colon", at + 1);
                Err(Problem::bad_request(words))
            }
        });
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        match (pairs.is_empty(), self.no_headers.is_empty()) {
            (true, true) => Ok(None),
            (true, false) => Ok(Some(HeadersText::default())),
            (false, true) => Ok(Some(HeadersText(pairs))),
            (false, false) => {
                Err(Problem::bad_request("write headers or remove all of them, not both at once"))
            }
        }
    }
}

/// When a target was changed last, to the microsecond, as the database has it.
pub(super) fn moment(target: &TargetJson) -> String {
    target.updated_at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn seconds(label: &str, text: &str) -> Result<Option<f64>, Problem> {
    let read: Option<f64> = number(label, text)?;
    match read {
        Some(seconds) if !seconds.is_finite() => Err(no_number(label)),
        read => Ok(read),
    }
}

fn number<T: FromStr>(label: &str, text: &str) -> Result<Option<T>, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| no_number(label))
}

fn no_number(label: &str) -> Problem {
    Problem::bad_request(format!(
        "the field “{label}” has no number that fits: correct it, or leave it empty"
    ))
}

/// The form, to be sent to an address; `back` leads away.
pub(super) fn show(visit: &Visit, action: &str, back: &str, given: &TargetForm) -> Markup {
    let is_new = given.changed_at.is_empty();
    let yes = if is_new { "Register the target" } else { "Change the target" };
    form::change(
        visit,
        action,
        html! {
            (form::text("url", "URL", &given.url, "https://mail.example/events"))
            @if is_new { (form::text("modifier", "Modifier (_ for none)", &given.modifier, "_")) }
            (numbers(given))
            (form::select("on_death", "When an event dies", &given.on_death, &ON_DEATH))
            (form::text("audience", "Audience of a Google token, if it takes one", &given.audience, ""))
            (form::area("headers", "Headers of its own, as name: value on lines", "", 3))
            @if !given.header_names.is_empty() {
                p.wide { "It has the headers " code { (given.header_names) } ". They stay if you write none." }
                (form::check("no_headers", "Remove all its headers", false))
            }
            (form::hidden("changed_at", &given.changed_at))
            p.choices { button.main type="submit" { (yes) } " " a.button href=(back) { "Leave it as it is" } }
        },
    )
}

/// How long events are kept: seconds, or some for each outcome.
pub(crate) fn kept_for(text: &str) -> Result<KeepJson<u32>, Problem> {
    if text.trim().is_empty() {
        return Ok(KeepJson::default());
    }
    let words = "`Keep ended events` is a whole number of seconds, or completed=604800,cancelled=86400";
    KeepJson::parse(text, |seconds| seconds.parse().ok()).ok_or_else(|| Problem::bad_request(words))
}

fn numbers(given: &TargetForm) -> Markup {
    html! {
        (form::text("retries", "Retries", &given.retries, "2"))
        (form::text("delay_s", "Delay of the first retry, in seconds", &given.delay_s, "300"))
        (form::text("factor", "Factor of each further delay", &given.factor, "1"))
        (form::text("delay_max_s", "Longest delay, in seconds", &given.delay_max_s, "86400"))
        (form::text("timeout_s", "Timeout of a request, in seconds", &given.timeout_s, "30"))
        (form::text("concurrency", "At a time, on each worker", &given.concurrency, "its share"))
        (form::text("keep_s", "Keep ended events, in seconds", &given.keep_s, "0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(text: &str, no_headers: &str) -> Result<Option<Vec<(String, String)>>, String> {
        let (headers, no_headers) = (text.to_owned(), no_headers.to_owned());
        let form = TargetForm { headers, no_headers, ..TargetForm::new() };
        let read = form.read().map_err(|problem| problem.detail().to_owned())?;
        Ok(read.headers.map(|HeadersText(pairs)| pairs))
    }

    #[test]
    fn headers_are_kept_replaced_or_removed() {
        assert_eq!(headers(" \n", ""), Ok(None), "kept");
        assert_eq!(headers("", "true"), Ok(Some(Vec::new())), "removed");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let two = vec![pair("X-Api-Key", "a:b"), pair("x-b", "2")];
        assert_eq!(headers("X-Api-Key: a:b\r\n\r\n  x-b:2 ", ""), Ok(Some(two)));
        for (text, no_headers, words) in
            [("x-a: 1\nsecret", "", "number 2 has no colon"), ("x-a: 1", "true", "not both at once")]
        {
            let refused = headers(text, no_headers).unwrap_err();
            assert!(refused.contains(words) && !refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn numbers_have_their_defaults_and_are_refused_with_their_names() {
        let shown = TargetForm::new().read().unwrap().policy;
        assert_eq!(shown, Policy::default());
        let url = " https://a.example/ ".to_owned();
        let emptied = TargetForm { url, delay_max_s: "10".to_owned(), ..TargetForm::default() };
        let read = emptied.read().unwrap();
        assert_eq!(
            (read.url.as_str(), read.policy.delay_s),
            ("https://a.example/", 10.0),
            "no longer than it may be"
        );
        assert_eq!(read.policy.retries, Policy::default().retries);
        assert_eq!((emptied.modifier(), read.audience), ("_", None));
        for form in [
            TargetForm { retries: "-1".to_owned(), ..TargetForm::new() },
            TargetForm { timeout_s: "NaN".to_owned(), ..TargetForm::new() },
            TargetForm { concurrency: "1.5".to_owned(), ..TargetForm::new() },
        ] {
            let refused = form.read().unwrap_err();
            assert!(refused.detail().contains("has no number that fits"), "{}", refused.detail());
        }
    }
}
