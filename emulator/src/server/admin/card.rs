//! A message on a page: what there is to know of it, its attributes, its body, and what can be done
//! with it.

use std::fmt::Write as _;

use super::body::{self, BodyForm};
use super::html::escaped;
use crate::broker::Message;

/// Writes a message. The facts are names and values; `form` is HTML.
pub(super) fn card(page: &mut String, message: &Message, facts: &[(&str, String)], form: &str) {
    let _infallible = write!(page, "<article><dl><dt>Message</dt><dd>{}</dd>", message.id);
    let of_message =
        [("Published", message.published.rfc3339()), ("Ordering key", message.ordering_key.clone())];
    for (name, value) in of_message.iter().chain(facts).filter(|(_, value)| !value.is_empty()) {
        let _infallible = write!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
    }
    page.push_str("</dl>\n");
    attributes(page, message);
    let shown = body::shown(&message.data);
    let (kind, class) = match shown.form {
        BodyForm::Json => ("JSON", ""),
        BodyForm::Text => ("Text", ""),
        BodyForm::Hex => ("Binary data", " class=\"hex\""),
    };
    if message.data.is_empty() {
        page.push_str("<p>No body.</p>");
    } else {
        // A browser drops a line break right after the tag.
        let _infallible = writeln!(page, "<pre{class} tabindex=\"0\">\n{}</pre>", escaped(&shown.text));
        let _infallible = write!(page, "<p>{kind} of {} bytes", message.data.len());
        if shown.is_cut {
            let _infallible = write!(page, ", of which the first {} are shown", body::BODY_BYTES_MAX);
        }
        page.push_str(".</p>");
    }
    let _infallible = writeln!(page, "{form}</article>");
}

fn attributes(page: &mut String, message: &Message) {
    let attributes = message.delivered_attributes();
    if attributes.is_empty() {
        return;
    }
    page.push_str("<table class=\"attributes\"><tbody>");
    for (key, value) in attributes.iter() {
        let _infallible =
            write!(page, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escaped(key), escaped(value));
    }
    page.push_str("</tbody></table>\n");
}
