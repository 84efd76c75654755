//! What a tool answers: the JSON of the API as text, of which an agent can read so much at once.
//!
//! Knows no tool. What it leaves out is always said.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::cli::text;
use crate::resources::wire::List;

/// Maximum bytes of an answer.
const BYTES_MAX: usize = 64 * 1024;
/// How many of them are for what is said of the rest.
const NOTE_BYTES: usize = 4 * 1024;
/// How many characters of a large field are shown. The most is taken that fits.
const SHOWN: [usize; 6] = [16 * 1024, 8 * 1024, 4 * 1024, 2 * 1024, 1024, 256];
/// Maximum characters of an error.
const ERROR_CHARACTERS_MAX: usize = 4_000;

/// The first items of a list that is too long.
#[derive(Serialize)]
struct Beginning {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
    left_out: String,
}

/// The text of an answer of the API, without characters that nobody sees, and cut if it is too
/// long. It is JSON in any case.
pub(super) fn shown(body: Vec<u8>) -> anyhow::Result<String> {
    let text = String::from_utf8(body).context("the answer is not UTF-8")?;
    let text = text::clean_json(&text);
    if text.len() <= BYTES_MAX {
        return Ok(text);
    }
    match serde_json::from_str::<List<Box<RawValue>>>(&text) {
        Ok(list) => beginning(list),
        Err(_) => shortened(&text, BYTES_MAX),
    }
}

/// The text of an error.
pub(super) fn error(words: &str) -> String {
    words.chars().take(ERROR_CHARACTERS_MAX).collect()
}

fn beginning(list: List<Box<RawValue>>) -> anyhow::Result<String> {
    let List { mut items, next_cursor, .. } = list;
    let (all, fit) = (items.len(), fitting(&items));
    items.truncate(fit.max(1));
    if fit == 0 {
        for item in &mut items {
            *item = RawValue::from_string(shortened(item.get(), BYTES_MAX - NOTE_BYTES)?)?;
        }
    }
    let shown = items.len();
    let left_out = if shown == all {
        "parts of the item, which says what is missing".to_owned()
    } else {
        format!(
            "{shown} of {all} items are shown, because an answer has at most {BYTES_MAX} bytes: ask again \
             with the limit {shown}, and its `next_cursor` leads to the others"
        )
    };
    // Of the whole page, so it would lead past what is left out.
    let next_cursor = next_cursor.filter(|_| shown == all);
    Ok(serde_json::to_string(&Beginning { items, next_cursor, left_out })?)
}

/// How many of the first items fit into an answer.
fn fitting(items: &[Box<RawValue>]) -> usize {
    let mut room = BYTES_MAX - NOTE_BYTES;
    let fitting = items.iter().take_while(|item| {
        let left = room.checked_sub(item.get().len() + 1);
        room = left.unwrap_or(room);
        left.is_some()
    });
    fitting.count()
}

/// An object of which large fields are texts with the beginning of their JSON.
fn shortened(object: &str, most: usize) -> anyhow::Result<String> {
    let fields: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(object).context("the answer is too long, and is not an object")?;
    for characters in SHOWN {
        let text = with_beginnings(fields.clone(), characters)?;
        if text.len() <= most {
            return Ok(text);
        }
    }
    anyhow::bail!("the answer has {} bytes, and {most} at most can be shown", object.len())
}

fn with_beginnings(mut fields: BTreeMap<String, Box<RawValue>>, characters: usize) -> anyhow::Result<String> {
    let mut left_out = Vec::new();
    for (name, value) in &mut fields {
        let bytes = value.get().len();
        if bytes > characters {
            let beginning: String = value.get().chars().take(characters).collect();
            *value = to_raw_value(&format!("{beginning}…"))?;
            left_out.push(format!("`{name}` has {bytes} bytes of JSON, whose beginning is shown as a text"));
        }
    }
    fields.insert("left_out".to_owned(), to_raw_value(&left_out.join("; "))?);
    Ok(serde_json::to_string(&fields)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(answer: &Value) -> Value {
        let text = shown(answer.to_string().into_bytes()).unwrap();
        assert!(text.len() <= BYTES_MAX, "{} bytes", text.len());
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_short_answer_stays_as_it_is_but_hides_nothing() {
        let text = r#"{"value": {"n": 1.50}, "id": 12345678901234567890123}"#;
        assert_eq!(shown(text.into()).unwrap(), text);
        let hidden = shown("{\"value\": \"a\u{e0041}\u{202e}b\"}".into()).unwrap();
        assert_eq!(hidden, r#"{"value": "a\udb40\udc41\u202eb"}"#);
    }

    #[test]
    fn a_long_list_is_cut_before_an_item() {
        let item = |at: usize| json!({"at": at, "error": "x".repeat(1000)});
        let page =
            json!({"items": (0..100).map(item).collect::<Vec<_>>(), "next_cursor": "c", "looked_at": 100});
        let cut = of(&page);
        let items = cut["items"].as_array().unwrap();
        assert!((50..65).contains(&items.len()), "{}", items.len());
        assert!(items.iter().enumerate().all(|(at, shown)| *shown == item(at)), "whole items");
        assert_eq!(cut["next_cursor"], Value::Null);
        let words = format!("{} of 100 items are shown", items.len());
        assert!(cut["left_out"].as_str().unwrap().starts_with(&words), "{cut}");
        let short = json!({"items": [item(1)], "next_cursor": "c"});
        assert_eq!(of(&short), short);
    }

    #[test]
    fn an_item_that_is_too_large_by_itself_is_shortened() {
        let page =
            json!({"items": [{"id": 1, "error": "é\"".repeat(40_000)}, {"id": 2}], "next_cursor": null});
        let cut = of(&page);
        assert_eq!(cut["items"].as_array().unwrap().len(), 1);
        assert_eq!(cut["items"][0]["id"], 1);
        assert!(cut["items"][0]["left_out"].as_str().unwrap().starts_with("`error` has "), "{cut}");
        let alone = json!({"items": [{"id": 1, "error": "x".repeat(70_000)}], "next_cursor": "c"});
        assert_eq!(of(&alone)["next_cursor"], "c", "nothing is behind it that is not shown");
    }

    #[test]
    fn large_fields_are_shortened_and_named() {
        let event = json!({"id": 1, "value": {"text": "\\\"".repeat(50_000)}, "result": "y".repeat(30_000)});
        let cut = of(&event);
        assert_eq!(cut["id"], 1);
        assert!(cut["value"].as_str().unwrap().starts_with(r#"{"text":"\\\""#), "{cut}");
        let left_out = cut["left_out"].as_str().unwrap();
        assert!(left_out.contains("`value` has 200011 bytes") && left_out.contains("`result`"), "{left_out}");
        let many: serde_json::Map<_, _> =
            (0..1000).map(|at| (at.to_string(), json!("z".repeat(300)))).collect();
        assert!(shown(Value::Object(many).to_string().into()).is_err());
        assert!(shown(json!("x".repeat(70_000)).to_string().into()).is_err());
    }

    #[test]
    fn an_error_has_a_limit() {
        assert_eq!(error("no such handler"), "no such handler");
        assert_eq!(error(&"é".repeat(5000)).chars().count(), ERROR_CHARACTERS_MAX);
    }
}
