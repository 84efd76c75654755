//! Answers, as far as they can be compared between worlds: without what differs in every world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;
use uuid::Uuid;

use super::program::Request;
use crate::support::service::Answer;

/// The answer to each request, by label.
pub(super) type Transcript = BTreeMap<String, ComparableAnswer>;

/// Ages, and numbers from sequences that all canvases share.
const NUMBERS: [&str; 9] =
    ["id", "seq", "prev", "last_id", "last_link", "through", "event_link", "oldest_age_s", "after"];
/// Headers that differ in every answer.
const HEADERS: [&str; 3] = ["date", "x-request-id", "content-length"];
/// Fields of a body that identify the request.
const OF_THE_REQUEST: [&str; 2] = ["request_id", "instance"];

/// Outcomes and actions that the record gathers and writes seconds or minutes later, some as one.
/// The reads among them are those that the page about access lists.
pub(super) static LATE: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let page = include_str!("../../../docs/access.md");
    let row = page.lines().find_map(|line| line.strip_prefix("| reads of values by ")).unwrap();
    let reads = row.split('`').skip(1).step_by(2).filter(|name| *name != "view=full");
    ["refused", "sign-in"].into_iter().chain(reads).collect()
});

fn is_late(word: &str) -> bool {
    LATE.contains(&word)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ComparableAnswer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Value,
    text: String,
}

impl ComparableAnswer {
    pub(super) fn of(answer: Answer) -> Self {
        let headers = answer.headers.iter().filter(|(name, _)| !HEADERS.contains(&name.as_str()));
        let headers =
            headers.map(|(name, value)| (name.to_string(), mask(value.to_str().unwrap_or_default())));
        let body = serde_json::from_str(&answer.text).unwrap_or_else(|_| Value::String(answer.text.clone()));
        Self {
            status: answer.status.as_u16(),
            headers: headers.collect(),
            body: masked(&body),
            text: answer.text,
        }
    }

    /// The output of a command.
    pub(super) fn printed(code: i32, text: &str) -> Self {
        let age = regex::Regex::new(r"the oldest for [0-9a-z ]+").unwrap();
        let text = age.replace_all(text, "the oldest for <age>").into_owned();
        let body = match serde_json::from_str(&text) {
            Ok(body) => masked(&body),
            Err(_) => {
                let kept = text.lines().filter(|line| !line.split_whitespace().any(is_late));
                // As in `masked`: the number counts the late lines, too. And columns are as wide as
                // what is in these.
                let lines = regex::Regex::new(r"audit-lines +[0-9]+ ").unwrap();
                let gaps = regex::Regex::new(" {2,}").unwrap();
                let line = |line| {
                    let line = lines.replace(line, "audit-lines <lines> ").into_owned();
                    Value::String(mask(&gaps.replace_all(&line, "  ")))
                };
                Value::Array(kept.map(line).collect())
            }
        };
        Self { status: code.unsigned_abs().try_into().unwrap_or(1), headers: BTreeMap::new(), body, text }
    }

    /// How this answer differs from the other world's.
    pub(super) fn difference(&self, label: &str, other: Option<&Self>) -> Option<String> {
        let Some(other) = other else {
            return Some(format!("{label}: nobody asked this in the other world"));
        };
        let body = |answered: &Self| {
            let mut body = answered.body.clone();
            if let Some(looked_at) = body.get_mut("looked_at").filter(|_| label.contains("list_audit")) {
                // It counts the late lines, too, as in `masked`.
                *looked_at = Value::Null;
            }
            body
        };
        if (self.status, &self.headers, body(self)) == (other.status, &other.headers, body(other)) {
            return None;
        }
        let whole =
            |answered: &Self| format!("{} {} {:?}", answered.status, body(answered), answered.headers);
        let (here, there) = (whole(self), whole(other));
        let same_start = here.chars().zip(there.chars()).take_while(|(one, other)| one == other).count();
        let short =
            |text: &str| text.chars().skip(same_start.saturating_sub(80)).take(300).collect::<String>();
        Some(format!("{label}: {} — alone it is: {}", short(&here), short(&there)))
    }

    /// Secrets of the victim in the answer.
    pub(super) fn revealed(&self, request: &Request, secrets: &BTreeSet<String>) -> Vec<String> {
        let found = secrets.iter().filter(|secret| self.text.contains(secret.as_str()));
        found.map(|secret| format!("{}: reveals {secret}", request.label)).collect()
    }
}

/// Without ids, moments, secrets, and numbers that all canvases share; lists are sorted by what is
/// left.
fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(mask(text)),
        Value::Array(items) => {
            let has_late = |value: &Value| value.as_str().is_some_and(is_late);
            let kept = items.iter().filter(|item| !has_late(&item["outcome"]) && !has_late(&item["action"]));
            let mut items: Vec<_> = kept.map(masked).collect();
            items.sort_by_cached_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let value = if OF_THE_REQUEST.contains(&name.as_str()) {
                    Value::Null
                } else if name == "used" && fields.get("quota").is_some_and(|quota| quota == "audit-lines") {
                    // It counts the late lines, too: `rows::lines_of_others`.
                    Value::String("<lines>".into())
                } else if value.is_string() && name == "next_cursor" {
                    Value::String("<cursor>".into())
                } else if value.is_number() && NUMBERS.contains(&name.as_str()) {
                    Value::String("<number>".into())
                } else {
                    masked(value)
                };
                (name.clone(), value)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

pub(super) fn mask(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word: usize =
            rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let id = rest.get(..36).filter(|start| Uuid::parse_str(start).is_ok());
        let moment = moment(rest);
        let hexadecimal = |text: &str| {
            [12, 16, 32, 40].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let (mask, length) = match (id, moment, &rest[..word]) {
            (Some(_), ..) => ("<id>", 36),
            (None, Some(length), _) => ("<moment>", length),
            (None, None, word) if word.starts_with("wakeq_") && word.len() > 70 => ("<key>", word.len()),
            (None, None, word) if word.starts_with("whsec_") => {
                ("<secret>", rest.find(['"', ' ']).unwrap_or(rest.len()))
            }
            (None, None, word) if hexadecimal(word.trim_start_matches("wakeq_")) => ("<key>", word.len()),
            (None, None, word) if word.len() > 1 => (word, word.len()),
            _ => {
                masked.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
        };
        masked.push_str(mask);
        rest = &rest[length..];
    }
    masked
}

/// The length of the moment at the start of a text.
fn moment(text: &str) -> Option<usize> {
    let start = text.as_bytes().get(..20)?;
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        b'T' => *byte == b'T' || *byte == b' ',
        other => byte == other,
    };
    if !start.iter().zip(shape).all(fits) {
        return None;
    }
    let rest =
        text.bytes().skip(19).take_while(|byte| byte.is_ascii_digit() || b".Z+:".contains(byte)).count();
    Some(19 + rest)
}
