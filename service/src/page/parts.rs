//! The parts that pages are made of.

use maud::{Markup, PreEscaped, html};

use super::partial::RESULTS;
use super::visit::Visit;

/// How a state is marked: never by its colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// All is well, or nothing is to be done.
    Calm,
    /// Something happens now.
    Busy,
    /// It waits for something.
    Waiting,
    /// Somebody should look.
    Alarm,
}

impl Tone {
    /// The class that colours it.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Alarm => "alarm",
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Calm => "●",
            Self::Busy => "▶",
            Self::Waiting => "◔",
            Self::Alarm => "▲",
        }
    }
}

/// A word with a sign before it.
pub(crate) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span class=(format!("badge {}", tone.class())) { span aria-hidden="true" { (tone.sign()) } " " (word) } }
}

/// A number with its thousands apart.
pub(crate) fn number(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        text.push('−');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// So many events, in words.
pub(crate) fn events(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{} events", number(count)) }
}

/// A large number with what it counts, which may lead somewhere.
pub(crate) fn tile(label: &str, value: &str, tone: Tone, link: Option<&str>) -> Markup {
    let contents = html! { span.value { (value) } span.label { (label) } };
    html! {
        @match link {
            Some(link) => a class=(format!("tile {}", tone.class())) href=(link) { (contents) },
            None => div class=(format!("tile {}", tone.class())) { (contents) },
        }
    }
}

/// Facts with their names. Those without a value are left out.
pub(crate) fn facts(facts: &[(&str, Option<Markup>)]) -> Markup {
    html! {
        dl.facts {
            @for (name, fact) in facts {
                @if let Some(fact) = fact { dt { (name) } dd { (fact) } }
            }
        }
    }
}

/// What stands where there is nothing: what that means, and what to do next.
pub(crate) fn empty(what: &str, next: Markup) -> Markup {
    html! { div.empty { p { strong { (what) } } p { (next) } } }
}

/// A table, which scrolls by itself on a narrow screen. Numbers stand on the right where the head
/// begins with `>`.
pub(crate) fn table(label: &str, head: &[&str], rows: Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for name in head { th scope="col" class=[name.starts_with('>').then_some("number")] {
                    (name.trim_start_matches('>')) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// The way to the next page of a list, with the filter of this one.
pub(crate) fn pager(visit: &Visit, next_cursor: Option<&str>) -> Markup {
    let parameters = visit.parameters();
    let others = || parameters.iter().filter(|(name, _)| name != "cursor");
    let address = |cursor: Option<&str>| {
        let mut pairs = url::form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(others());
        pairs.extend_pairs(cursor.map(|cursor| ("cursor", cursor)));
        format!("?{}", pairs.finish())
    };
    let is_first = parameters.iter().all(|(name, _)| name != "cursor");
    html! {
        @if !is_first || next_cursor.is_some() {
            nav.pager aria-label="Pages of the list" {
                @if !is_first { (swapped(&address(None), "first", "First page")) }
                @if let Some(cursor) = next_cursor { (swapped(&address(Some(cursor)), "next", "Next page")) }
            }
        }
    }
}

/// A link to another part of a list, which a script shows in place of this one.
fn swapped(address: &str, relation: &str, words: &str) -> Markup {
    html! {
        a href=(address) rel=(relation) hx-get=(address) hx-target={ "#" (RESULTS) } hx-push-url="true"
            hx-swap="innerHTML show:#main:top" { (words) }
    }
}

/// How many bytes are shown of a value that is laid out, which may be thirty times as large as it
/// was written; and of one of many on a page.
const JSON_MAX: usize = 512 * 1024;
const JSON_OF_MANY_MAX: usize = 16 * 1024;

/// JSON as it was written, with its numbers exact, on lines of their own. Of a very large value it
/// is the beginning.
pub(crate) fn json(text: &str) -> Markup {
    laid_out(text, JSON_MAX)
}

/// The same for one of many values on a page.
pub(crate) fn json_of_many(text: &str) -> Markup {
    laid_out(text, JSON_OF_MANY_MAX)
}

fn laid_out(text: &str, most: usize) -> Markup {
    let (shown, is_whole) = indented(text, most);
    html! {
        pre.json tabindex="0" { (shown) @if !is_whole { "…" } }
        @if !is_whole {
            p.quiet { "This is the beginning of " (number(text.len() as u64)) " bytes. The API answers with all of them." }
        }
    }
}

/// Stands for values that the person may not see.
pub(crate) fn hidden() -> Markup {
    html! { p.quiet { "Hidden: to see values, a key needs the scope " code { "values" } "." } }
}

/// Text that can be copied.
pub(crate) fn copied(text: &str) -> Markup {
    html! { span.copied { code { (text) } " " button.plain type="button" data-copy=(text) { "Copy" } } }
}

/// A mark-up that is trusted: made by this program.
pub(crate) fn svg(text: String) -> Markup {
    PreEscaped(text)
}

/// JSON with line breaks and indentation, and whether it is all of it: it ends after `most` bytes.
/// Strings and numbers stay as they are; what is no JSON comes back as it is.
fn indented(text: &str, most: usize) -> (String, bool) {
    let (mut out, mut depth, mut in_string, mut escaped) =
        (String::with_capacity(text.len().min(most)), 0_usize, false, false);
    let mut rest = text.chars().peekable();
    while let Some(sign) = rest.next() {
        if out.len() >= most {
            return (out, false);
        }
        if in_string {
            out.push(sign);
            in_string = escaped || sign != '"';
            escaped = !escaped && sign == '\\';
            continue;
        }
        match sign {
            '"' => {
                in_string = true;
                out.push(sign);
            }
            '{' | '[' => {
                while rest.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                let closing = if sign == '{' { '}' } else { ']' };
                out.push(sign);
                if rest.next_if_eq(&closing).is_some() {
                    out.push(closing);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(sign);
            }
            ',' => {
                out.push(sign);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            sign if sign.is_ascii_whitespace() => {}
            sign => out.push(sign),
        }
    }
    (out, true)
}

/// How far a line is indented at most, so that deep values don't become large ones.
const DEPTH_MAX: usize = 32;

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth.min(DEPTH_MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        for (given, text) in
            [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (-1_234_567, "−1\u{202f}234\u{202f}567")]
        {
            assert_eq!(number(given), text);
        }
    }

    #[test]
    fn json_keeps_its_numbers_and_strings() {
        let text = r#"{"a":[1.10,-2e400,123456789012345678901234567890], "b" : {}, "c":"x, {\"y\": [\\"}"#;
        let indented = |text: &str| indented(text, usize::MAX).0;
        let shown = indented(text);
        assert_eq!(
            shown,
            "{\n  \"a\": [\n    1.10,\n    -2e400,\n    123456789012345678901234567890\n  ],\n  \
             \"b\": {},\n  \"c\": \"x, {\\\"y\\\": [\\\\\"\n}"
        );
        for plain in ["null", "\"a:b\"", "[]", "17"] {
            assert_eq!(indented(plain), plain);
        }
        let deep = "[".repeat(1_000);
        assert!(indented(&deep).len() < 1_000 * (2 * DEPTH_MAX + 3), "depth does not multiply");
    }

    #[test]
    fn a_large_value_is_shown_to_some_extent() {
        let many = format!("{}{}", "[".repeat(DEPTH_MAX), "1,".repeat(JSON_MAX / 2));
        let shown = json(&many).into_string();
        assert!(shown.len() < JSON_MAX + 1_000, "{} bytes of {}", shown.len(), many.len());
        assert!(
            shown.contains("…</pre>") && shown.contains("This is the beginning of 524\u{202f}320 bytes.")
        );
        assert!(json_of_many(&many).into_string().len() < JSON_OF_MANY_MAX + 1_000);
        assert!(!json("[1]").into_string().contains("beginning"));
    }

    #[test]
    fn what_a_tenant_has_written_is_escaped() {
        let evil = "</pre><script>alert(1)</script>";
        for markup in
            [json(evil), copied(evil), badge(Tone::Calm, evil), tile(evil, evil, Tone::Busy, Some(evil))]
        {
            assert!(!markup.into_string().contains("<script"));
        }
    }
}
