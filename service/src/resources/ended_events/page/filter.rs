//! The filter of kept events in a page's address: its fields, and what the API is asked for with
//! it.

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};

use crate::http::problem::Problem;
use crate::page::visit::Visit;
use crate::page::{form, given};

const OUTCOMES: [(&str, &str); 4] = [
    ("", "any outcome"),
    ("completed", "completed"),
    ("failed", "failed (completed with an error value)"),
    ("cancelled", "cancelled"),
];

/// The conditions that are lines of the form, as the API names them, each with its label and what
/// may be written there.
const LINES: [(&str, &str, &str); 15] = [
    ("name", "Handler", "send-email"),
    ("tag", "Tags, all of them", "customer:7"),
    ("error_text", "Error contains", "timeout"),
    ("since", "Ended since", "1 d"),
    ("before", "Ended before", "1 h"),
    ("module", "Module", "WORKER"),
    ("modifier", "Modifier", "_"),
    ("object", "Object", "order:42"),
    ("batch", "Batch", "import:42"),
    ("emitted_since", "Emitted since", "1 h"),
    ("emitted_before", "Emitted before", "2030-01-31T08:00"),
    ("value_text", "Value contains", "order 42"),
    ("value", "Value at a path", "$.customer.id = \"7\""),
    ("result_text", "Result contains", "receipt"),
    ("result", "Result at a path", "$.receipt = 9"),
];

/// How many lines are always shown. The others can be folded away.
const FIRST: usize = 5;

/// Conditions that are moments.
const MOMENTS: [&str; 4] = ["since", "before", "emitted_since", "emitted_before"];

/// Conditions that are looked for as they are written.
const TEXTS: [&str; 3] = ["error_text", "value_text", "result_text"];

/// The parameters of the API's list, with distances as moments before or after `now`.
pub(super) fn query(
    parameters: &[(String, String)],
    now: DateTime<Utc>,
) -> Result<Vec<(String, String)>, Problem> {
    let is_asked =
        |name: &str| name == "outcome" || name == "cursor" || LINES.iter().any(|(line, ..)| *line == name);
    let asked = parameters.iter().filter(|(name, _)| is_asked(name));
    let pairs = asked.map(|(name, text)| {
        let moment = if MOMENTS.contains(&name.as_str()) { given::moment(name, text, now)? } else { None };
        let text = match moment {
            Some(moment) => moment.to_rfc3339_opts(SecondsFormat::Micros, true),
            None if TEXTS.contains(&name.as_str()) => text.clone(),
            None => text.trim().to_owned(),
        };
        Ok((name.clone(), text))
    });
    pairs.collect()
}

pub(super) fn fields(visit: &Visit) -> Markup {
    let (first, further) = LINES.split_at(FIRST);
    let parameters = visit.parameters();
    // Several tags are one line.
    let given = |name: &str| {
        let values = parameters.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
        values.collect::<Vec<_>>().join(",")
    };
    let line = |(name, label, example): &(&str, &str, &str)| form::text(name, label, &given(name), example);
    let is_open = further.iter().any(|(name, ..)| !given(name).is_empty());
    form::filter(
        visit,
        html! {
            (form::select("outcome", "Outcome", &given("outcome"), &OUTCOMES))
            @for shown in first { (line(shown)) }
            details.more open[is_open] {
                summary { "More conditions" }
                div.fields { @for shown in further { (line(shown)) } }
                p.quiet {
                    "A time is a length, such as " code { "1 h" } " for an hour ago, or a moment in UTC. A search in \
                     values or results takes the right to see them."
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query_of_page: &str) -> Result<Vec<(String, String)>, Problem> {
        let pairs = url::form_urlencoded::parse(query_of_page.as_bytes()).into_owned();
        query(&pairs.collect::<Vec<_>>(), DateTime::from_timestamp(1_900_000_000, 0).unwrap())
    }

    #[test]
    fn an_address_is_read() {
        let query = asked("outcome=failed&tag=a&tag=b&since=1+h&error_text=+no+&before=&nonsense=1").unwrap();
        let pairs: Vec<_> = query.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("outcome", "failed"),
                ("tag", "a"),
                ("tag", "b"),
                ("since", "2030-03-17T16:46:40.000000Z"),
                ("error_text", " no "),
                ("before", ""),
            ]
        );
        let refused = asked("before=soon").unwrap_err();
        assert!(refused.detail().contains("such as `1 h`"), "{}", refused.detail());
    }
}
