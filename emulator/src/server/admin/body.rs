//! A message's body in a form that people read: indented JSON, else text, else bytes in hexadecimal
//! digits. Of a large body it is the beginning.
//!
//! JSON keeps its numbers, the order of its members and its escapes as they were sent.

use std::fmt::Write as _;

use serde::de::IgnoredAny;

/// How much of a body is shown.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;
/// JSON that its indents make longer than this is shown as text, and so is JSON that they make much
/// longer than it was.
const INDENTED_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;
const INDENTED_FACTOR_MAX: usize = 8;
/// What indents may always add.
const INDENTS_BYTES: usize = 1024;
const BYTES_PER_ROW: usize = 16;

/// The form in which a body is shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyForm {
    Json,
    Text,
    Hex,
}

/// What is shown of a body. It is not escaped.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct ShownBody {
    pub(super) form: BodyForm,
    pub(super) text: String,
    /// Whether it is only the beginning.
    pub(super) is_cut: bool,
}

/// What is shown of this body.
pub(super) fn shown(data: &[u8]) -> ShownBody {
    let is_cut = data.len() > BODY_BYTES_MAX;
    let text = std::str::from_utf8(data).ok().filter(|text| is_readable(text));
    let Some(text) = text else {
        let beginning = &data[..data.len().min(BODY_BYTES_MAX)];
        return ShownBody { form: BodyForm::Hex, text: hex(beginning), is_cut };
    };
    let is_json = !is_cut && serde_json::from_str::<IgnoredAny>(text).is_ok();
    if let Some(text) = is_json.then(|| indented(text)).flatten() {
        return ShownBody { form: BodyForm::Json, text, is_cut };
    }
    ShownBody { form: BodyForm::Text, text: beginning(text).to_owned(), is_cut }
}

fn is_readable(text: &str) -> bool {
    !text.chars().any(|character| character.is_control() && !['\n', '\r', '\t'].contains(&character))
}

fn beginning(text: &str) -> &str {
    let mut end = text.len().min(BODY_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Changes nothing but the space between the tokens of valid JSON. `None` if that takes too much.
fn indented(json: &str) -> Option<String> {
    let most = INDENTED_BYTES_MAX.min(INDENTED_FACTOR_MAX * json.len() + INDENTS_BYTES);
    let mut text = String::new();
    let (mut depth, mut is_opened) = (0_usize, false);
    let (mut in_string, mut in_escape) = (false, false);
    for character in json.chars() {
        if in_string {
            text.push(character);
            in_string = in_escape || character != '"';
            in_escape = !in_escape && character == '\\';
            continue;
        }
        if character.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(character, '}' | ']');
        depth = depth.saturating_sub(usize::from(closes));
        // Nothing but its end follows the beginning of an empty list on the same line.
        if is_opened != closes {
            break_line(&mut text, depth);
        }
        text.push(character);
        is_opened = matches!(character, '{' | '[');
        depth += usize::from(is_opened);
        in_string = character == '"';
        match character {
            ',' => break_line(&mut text, depth),
            ':' => text.push(' '),
            _ => {}
        }
        if text.len() > most {
            return None;
        }
    }
    Some(text)
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Rows of an offset, bytes, and the letters that they are in ASCII.
fn hex(bytes: &[u8]) -> String {
    let mut rows = String::new();
    for (row, bytes) in bytes.chunks(BYTES_PER_ROW).enumerate() {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let is_letter = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        let letters = bytes.iter().map(|byte| if is_letter(*byte) { char::from(*byte) } else { '.' });
        let letters: String = letters.collect();
        let _infallible = writeln!(rows, "{:08x}  {:<47}  {letters}", row * BYTES_PER_ROW, digits.join(" "));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_and_text(data: &[u8]) -> (BodyForm, String) {
        let shown = shown(data);
        assert!(!shown.is_cut);
        (shown.form, shown.text)
    }

    #[test]
    fn json_is_indented_and_otherwise_as_it_was_sent() {
        let sent = br#"{"b":1.10,"a":[12345678901234567890123,{}, [ ]],"b":"x,{\"\\","c":null}"#;
        let expected = "{\n  \"b\": 1.10,\n  \"a\": [\n    12345678901234567890123,\n    {},\n    []\n  ],\n  \"b\": \
                        \"x,{\\\"\\\\\",\n  \"c\": null\n}";
        assert_eq!(form_and_text(sent), (BodyForm::Json, expected.to_owned()));
        assert_eq!(form_and_text(b" [] "), (BodyForm::Json, "[]".to_owned()));
        assert_eq!(form_and_text(b"17"), (BodyForm::Json, "17".to_owned()));
    }

    #[test]
    fn a_body_that_is_no_json_is_text_and_one_that_is_no_text_is_hex() {
        assert_eq!(form_and_text(b"{\"a\": }"), (BodyForm::Text, "{\"a\": }".to_owned()));
        assert_eq!(form_and_text("gr\u{fc}n\tund\r\n".as_bytes()).0, BodyForm::Text);
        let row = "00000000  00 ff 41                                         ..A\n";
        assert_eq!(form_and_text(&[0, 0xff, b'A']), (BodyForm::Hex, row.to_owned()));
        assert_eq!(form_and_text(b"\x1b[31mred").0, BodyForm::Hex, "a control character");
        assert_eq!(form_and_text(&[b'x'; 17]).0, BodyForm::Text);
        assert_eq!(hex(&[0; 17]).lines().count(), 2);
    }

    #[test]
    fn a_large_body_is_cut() {
        let large = "\u{fc}".repeat(BODY_BYTES_MAX);
        let cut = shown(&large.as_bytes()[1..]);
        assert_eq!((cut.form, cut.is_cut), (BodyForm::Hex, true), "it begins within a character");
        assert_eq!(cut.text.lines().count(), BODY_BYTES_MAX / BYTES_PER_ROW);
        let cut = shown(format!("x{large}").as_bytes());
        assert_eq!((cut.form, cut.text.len(), cut.is_cut), (BodyForm::Text, BODY_BYTES_MAX - 1, true));
        let whole = shown(&[b'x'; BODY_BYTES_MAX]);
        assert_eq!((whole.text.len(), whole.is_cut), (BODY_BYTES_MAX, false));
    }

    #[test]
    fn json_whose_indents_take_too_much_is_text() {
        let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
        for deep in [nested(20_000, ""), nested(100, &format!("{}1", "1,".repeat(500)))] {
            assert_eq!(form_and_text(deep.as_bytes()), (BodyForm::Text, deep.clone()));
        }
        assert_eq!(form_and_text(nested(10, "1,1,1").as_bytes()).0, BodyForm::Json);
    }
}
