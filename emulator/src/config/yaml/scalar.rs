//! Texts in quotes and without, and what the latter mean.

use std::str::CharIndices;

use serde_json::{Number, Value};

/// What a text without quotes can't begin with.
const SPECIAL: [char; 13] = ['&', '*', '!', '%', '@', '`', '>', ',', ']', '}', '[', '{', '|'];

/// The text before a comment, without blanks at its end.
pub(super) fn without_comment(text: &str) -> &str {
    let is_comment = |at: usize| text[..at].is_empty() || text[..at].ends_with([' ', '\t']);
    let comment = text.match_indices('#').map(|(at, _)| at).find(|at| is_comment(*at));
    text[..comment.unwrap_or(text.len())].trim_end()
}

/// Reads a text in quotes, which ends on its line. Returns it, and how many bytes it takes there.
pub(super) fn quoted(text: &str) -> Result<(String, usize), String> {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    let mut read = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '\n' => break,
            '\'' if quote == Some('\'') && text[at + 1..].starts_with('\'') => {
                characters.next();
                read.push('\'');
            }
            '\'' | '"' if quote == Some(character) => return Ok((read, at + 1)),
            '\\' if quote == Some('"') => read.push(escaped(&mut characters)?),
            _ => read.push(character),
        }
    }
    Err("a text in quotes has to end on its line".to_owned())
}

fn escaped(characters: &mut CharIndices<'_>) -> Result<char, String> {
    let kind = characters.next().map_or('\n', |(_, kind)| kind);
    let digits = match kind {
        '"' | '\\' | '/' | ' ' => return Ok(kind),
        '0' => return Ok('\0'),
        'b' => return Ok('\u{8}'),
        't' => return Ok('\t'),
        'n' => return Ok('\n'),
        'f' => return Ok('\u{c}'),
        'r' => return Ok('\r'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return Err(format!("`\\{kind}` is not read in a text")),
    };
    let number: String = characters.take(digits).map(|(_, digit)| digit).collect();
    let character = u32::from_str_radix(&number, 16).ok().and_then(char::from_u32);
    character.ok_or_else(|| format!("`\\{kind}{number}` is not a character"))
}

/// What a text without quotes means.
pub(super) fn unquoted(text: &str) -> Result<Value, String> {
    if text.starts_with(SPECIAL) {
        return Err(format!("`{text}` has to be in quotes: anchors, tags, directives and `>` are not read"));
    }
    if text == "?" || text.starts_with("? ") || text == "-" || text.starts_with("- ") {
        return Err(format!("`{text}` can't stand here"));
    }
    if text == "---" || text == "..." || text.starts_with("--- ") {
        return Err("a file has one document".to_owned());
    }
    if text.contains(": ") || text.contains(":\t") || text.ends_with(':') {
        return Err(format!("`{text}` has to be in quotes, because of its colon"));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

fn number(text: &str) -> Option<Number> {
    let with = |prefix: &str, radix: u32| -> Option<u64> {
        u64::from_str_radix(text.strip_prefix(prefix)?, radix).ok()
    };
    if let Some(number) = with("0x", 16).or_else(|| with("0o", 8)) {
        return Some(number.into());
    }
    // Other words that are numbers in Rust, such as `inf`, are texts.
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit())
        && text.starts_with(|first: char| first.is_ascii_digit() || ['-', '+', '.'].contains(&first))
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"-+.eE".contains(&byte));
    if !is_number {
        return None;
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    text.parse().ok().and_then(Number::from_f64)
}
