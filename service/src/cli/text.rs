//! Sanitizes text from elsewhere for terminals: escapes all characters that could control the
//! terminal or change the order in which text is read. Does not decide what is worth showing.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Escapes what a terminal must not receive raw: `\u{1b}`, `\n`.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for (character, is_harmless) in judged(text) {
        if is_harmless {
            cleaned.push(character);
        } else {
            cleaned.extend(character.escape_default());
        }
    }
    cleaned
}

/// The same for text of several lines, keeping its line breaks.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

/// The same for JSON text, which remains equivalent JSON: outside of strings, only carriage returns
/// have to be replaced.
pub(crate) fn clean_json(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut units = [0; 2];
    for (character, is_harmless) in judged(text) {
        match character {
            '\r' => cleaned.push(' '),
            '\n' | '\t' => cleaned.push(character),
            _ if is_harmless => cleaned.push(character),
            _ => {
                for unit in character.encode_utf16(&mut units) {
                    cleaned.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    cleaned
}

/// Each character, and whether it may be shown as it is. A joiner may after what is not ASCII: it
/// belongs to the writing of Persian and Indic words, and to emoji.
fn judged(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut before = ' ';
    text.chars().map(move |character| {
        let joins = matches!(character, '\u{200c}' | '\u{200d}') && !before.is_ascii();
        before = character;
        (character, joins || is_harmless(character))
    })
}

/// Neither a control character, nor an invisible one that changes how its neighbours are read.
fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Cuts the text to a number of terminal cells; if shortened, it ends with `…`.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut used = "…".width();
    let fits = |character: &char| {
        used += character.width().unwrap_or_default();
        used <= most
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("naïve 日本 'ok' \\"), "naïve 日本 'ok' \\");
        assert_eq!(
            clean("a\u{1b}[31mb\u{9b}c\nd\u{202e}e\u{7f}"),
            "a\\u{1b}[31mb\\u{9b}c\\nd\\u{202e}e\\u{7f}"
        );
        for joined in ["\u{1f469}\u{200d}\u{1f4bb}", "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}"] {
            assert_eq!(clean(joined), joined);
            assert_eq!(clean_json(joined), joined);
        }
        assert_eq!(clean("a\u{200d}b"), "a\\u{200d}b", "two names that look the same");
        assert_eq!(clean_lines("a\nb\u{7}\r\nc"), "a\nb\\u{7}\nc");
    }

    #[test]
    fn cleaned_json_keeps_its_meaning() {
        let text = "{\r\n \"a\": \"\u{9b}\u{202e}\u{e0041}日\"}";
        let cleaned = clean_json(text);
        assert_eq!(cleaned, "{ \n \"a\": \"\\u009b\\u202e\\udb40\\udc41日\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&cleaned), value(text));
    }

    #[test]
    fn truncated_text_fits_its_width() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("e\u{301}→─f", 4), "e\u{301}→─f");
        assert_eq!(cut("abc", 0), "…");
    }
}
