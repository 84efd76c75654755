//! Values for people: JSON text on several lines, with all names, strings and numbers exactly as
//! emitted.

/// Maximum number of lines, unless all are requested.
const LINES: usize = 20;
/// Maximum number of characters per line.
const WIDTH: usize = 160;

/// Indents JSON text; shortens it unless `full`.
pub(crate) fn pretty(json: &str, full: bool) -> String {
    let whole = indented(json);
    if full {
        return whole;
    }
    let mut lines = whole.lines();
    let mut shown: Vec<String> =
        lines.by_ref().take(LINES).map(|line| line.chars().take(WIDTH).collect()).collect();
    let cut =
        lines.next().is_some() || whole.lines().zip(&shown).any(|(line, shown)| line.len() > shown.len());
    if cut {
        shown.push(format!("… cut, of {} bytes: --full shows all", json.len()));
    }
    shown.join("\n")
}

fn indented(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if in_string {
            text.push(character);
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            ' ' | '\t' | '\n' | '\r' => {}
            '{' | '[' => {
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                text.push(character);
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    new_line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(character);
                new_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            _ => {
                in_string = character == '"';
                text.push(character);
            }
        }
    }
    text
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_printing_keeps_numbers_and_strings_verbatim() {
        let json = r#"{"b" : 1.50, "a":[ ],"c":["x:, {\"]\\",{}, 1e400]}"#;
        let expected = "{\n  \"b\": 1.50,\n  \"a\": [],\n  \"c\": [\n    \"x:, {\\\"]\\\\\",\n    {},\n    1e400\n  ]\n}";
        assert_eq!(pretty(json, true), expected);
        assert_eq!(pretty("\"text\"", false), "\"text\"");
        assert_eq!(pretty("[\n]", false), "[]");
    }

    #[test]
    fn long_values_are_cut_and_say_so() {
        let many = format!("[{}1]", "1,".repeat(30));
        let shown = pretty(&many, false);
        assert_eq!(shown.lines().count(), LINES + 1);
        assert!(shown.ends_with("\n… cut, of 63 bytes: --full shows all"), "{shown}");
        assert_eq!(pretty(&many, true).lines().count(), 33);
        let long = pretty(&format!("\"{}\"", "ä".repeat(300)), false);
        assert_eq!(long.lines().next().unwrap().chars().count(), WIDTH);
        assert!(long.ends_with("--full shows all"), "{long}");
    }
}
