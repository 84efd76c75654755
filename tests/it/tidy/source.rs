//! A minimal reader of Rust source for the tidy rules: code apart from comments and strings,
//! functions, tests.
//!
//! It is a scanner, not a parser; it must never be asked what only a compiler can know.

use std::ops::Range;

/// One source file.
pub(super) struct Source {
    /// Its path in the repository.
    pub(super) name: String,
    pub(super) text: String,
    /// Its text with comments and the insides of literals blanked; every byte keeps its position.
    pub(super) code: String,
    pub(super) strings: Vec<Literal>,
}

/// A string literal.
pub(super) struct Literal {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A function with a body.
pub(super) struct Function {
    pub(super) name: String,
    /// The line of its `fn`.
    pub(super) line: usize,
    /// Lines from its `fn` to its closing brace.
    pub(super) lines: usize,
    start: usize,
}

impl Source {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let (code, strings) = Scanner::new(text).scan();
        Self { name: name.to_owned(), text: text.to_owned(), code, strings }
    }

    /// The line that a byte of the text or code is on, from 1.
    pub(super) fn line_at(&self, position: usize) -> usize {
        line_at(&self.text, position)
    }

    /// Functions that have a body, including nested ones.
    pub(super) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for start in words(&self.code, "fn") {
            let name: String =
                self.code[start + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            let Some(open) = body_start(&self.code, start) else { continue };
            if name.is_empty() {
                continue;
            }
            let line = self.line_at(start);
            let lines = self.line_at(closing_brace(&self.code, open)) - line + 1;
            functions.push(Function { name, line, lines, start });
        }
        functions
    }

    /// Names of the functions with a `#[test]`, `#[tokio::test]` or the like.
    pub(super) fn test_names(&self) -> Vec<String> {
        let tests = self.functions().into_iter().filter(|function| self.is_test(function));
        tests.map(|function| function.name).collect()
    }

    /// Whether a function has a `#[test]`, `#[tokio::test]` or the like.
    pub(super) fn is_test(&self, function: &Function) -> bool {
        let above = &self.code[self.since_last_item(function)];
        above.contains("test]") || above.contains("test(")
    }

    /// The comments and attributes of a function.
    pub(super) fn above(&self, function: &Function) -> &str {
        &self.text[self.since_last_item(function)]
    }

    fn since_last_item(&self, function: &Function) -> Range<usize> {
        let last_item = self.code[..function.start].rfind(['}', ';', '{']);
        last_item.map_or(0, |end| end + 1)..function.start
    }

    /// All functions, each with its path: the modules that it is in, and its name.
    pub(super) fn paths(&self) -> Vec<(Function, String)> {
        let roots = ["src/", "tests/it/", "tests/"];
        let file = roots.into_iter().find_map(|root| self.name.rsplit_once(root));
        let file = file.map_or(self.name.as_str(), |(_, file)| file).trim_end_matches(".rs");
        let is_folder = |part: &&str| !["mod", "lib", "main"].contains(part);
        let modules: Vec<_> = file.split('/').filter(is_folder).map(str::to_owned).collect();
        let inline: Vec<_> = words(&self.code, "mod")
            .filter_map(|start| {
                let open = body_start(&self.code, start)?;
                let name = self.code[start + 3..open].trim().to_owned();
                Some((name, start..closing_brace(&self.code, open)))
            })
            .collect();
        let path = |function: Function| {
            let around = inline.iter().filter(|(_, range)| range.contains(&function.start));
            let modules = modules.iter().cloned().chain(around.map(|(name, _)| name.clone()));
            let path = modules.chain([function.name.clone()]).collect::<Vec<_>>().join("::");
            (function, path)
        };
        self.functions().into_iter().map(path).collect()
    }

    /// The code without inline modules (`mod tests { … }`), blanked in place.
    pub(super) fn code_outside_inline_modules(&self) -> String {
        let mut code = self.code.clone();
        for start in words(&self.code, "mod") {
            if let Some(open) = body_start(&self.code, start) {
                let close = closing_brace(&self.code, open);
                code.replace_range(start..close, &blank(&self.code[start..close]));
            }
        }
        code
    }

    /// The same without any item that only tests have, also blanked in place.
    pub(super) fn code_outside_tests(&self) -> String {
        let mut code = self.code_outside_inline_modules();
        let attributes: Vec<usize> = code.match_indices(FOR_TESTS).map(|(start, _)| start).collect();
        for start in attributes {
            let end = item_end(&code, start + FOR_TESTS.len());
            let blanked = blank(&code[start..end]);
            code.replace_range(start..end, &blanked);
        }
        code
    }
}

/// The attribute of an item that only tests have.
const FOR_TESTS: &str = "#[cfg(test)]";

/// The positions at which a word stands alone in the code.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(start, _)| start).filter(move |start| {
        let before = code[..*start].chars().next_back();
        let after = code[*start + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a character can be part of a name.
pub(super) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn line_at(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

/// The `{` that opens the body of the item that starts here, unless a `;` ends the item first.
fn body_start(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code.as_bytes()[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' if depth == 0 => return None, // the type `fn(…)`, as an argument
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(start + offset),
            b';' | b'}' | b'=' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where the item that starts here ends: after its `;` or its body, or before the `}` around it.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in code.as_bytes()[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => {
                let close = closing_brace(code, start + offset);
                let Some(rest) = code[close..].strip_prefix('}') else { return close };
                return close + 1 + usize::from(rest.starts_with(';'));
            }
            b';' if depth == 0 => return start + offset + 1,
            b'}' if depth == 0 => return start + offset,
            _ => {}
        }
    }
    code.len()
}

fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (offset, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return open + offset,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

struct Scanner<'a> {
    text: &'a str,
    position: usize,
    code: String,
    strings: Vec<Literal>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, position: 0, code: String::with_capacity(text.len()), strings: Vec::new() }
    }

    fn scan(mut self) -> (String, Vec<Literal>) {
        while let Some(next) = self.rest().chars().next() {
            if self.rest().starts_with("//") {
                self.hide(self.rest().find('\n').unwrap_or(self.rest().len()));
            } else if self.rest().starts_with("/*") {
                self.hide(block_comment_length(self.rest()));
            } else if let Some((quote, end)) = string_bounds(self.rest(), self.code.chars().next_back()) {
                let text = self.rest()[quote..end].to_owned();
                self.strings.push(Literal { line: line_at(self.text, self.position), text });
                self.hide(end);
            } else if let Some(length) = character_length(self.rest()) {
                self.hide(length);
            } else {
                self.code.push(next);
                self.position += next.len_utf8();
            }
        }
        (self.code, self.strings)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn hide(&mut self, length: usize) {
        self.code.push_str(&blank(&self.rest()[..length]));
        self.position += length;
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut position = 0;
    while position < text.len() {
        let rest = &text.as_bytes()[position..];
        if rest.starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    text.len()
}

/// Where the inside of a string literal begins and where the literal ends, if one starts here.
fn string_bounds(text: &str, before: Option<char>) -> Option<(usize, usize)> {
    if before.is_some_and(is_word) {
        return None;
    }
    let prefix = text
        .bytes()
        .take(3)
        .position(|byte| matches!(byte, b'"' | b'#' | b'\''))
        .filter(|length| ["", "b", "c", "r", "br", "cr"].contains(&&text[..*length]))?;
    let raw = text[..prefix].ends_with('r');
    let hashes = text[prefix..].bytes().take_while(|byte| *byte == b'#').count();
    if (hashes > 0 && !raw) || !text[prefix + hashes..].starts_with('"') {
        return None;
    }
    let inside = prefix + hashes + 1;
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some((
            inside,
            text[inside..].find(&end).map_or(text.len(), |found| inside + found + end.len()),
        ));
    }
    let mut escaped = false;
    for (offset, byte) in text.as_bytes()[inside..].iter().enumerate() {
        match byte {
            b'\\' if !escaped => escaped = true,
            b'"' if !escaped => return Some((inside, inside + offset + 1)),
            _ => escaped = false,
        }
    }
    Some((inside, text.len()))
}

/// The length of a character literal, if one starts here; a lifetime is not one.
fn character_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    if let Some(escape) = inside.strip_prefix('\\') {
        let first = escape.chars().next()?.len_utf8();
        return escape[first..].find('\'').map(|end| 2 + first + end + 1);
    }
    let length = inside.chars().next()?.len_utf8();
    inside[length..].starts_with('\'').then_some(length + 2)
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = "let a = \"{ \\\" //\"; // }\nlet b = r#\"\"{\"#; /* { /* } */ */ let c = ('{', '\\'', b'\"', b\"{\");\nfn d<'a>(e: &'a str) {}";
    let source = Source::new("a.rs", text);
    assert_eq!(source.code.len(), text.len());
    assert_eq!(source.code.matches(['{', '}']).count(), 2, "{}", source.code);
    assert_eq!(
        source.strings.iter().map(|literal| literal.text.as_str()).collect::<Vec<_>>(),
        ["{ \\\" //\"", "\"{\"#", "{\""]
    );
    assert!(source.code.contains("fn d<'a>(e: &'a str) {}"));
}

#[test]
fn functions_are_measured_to_their_last_brace() {
    let text = "trait A { fn a(&self); }\nfn b<F>(f: fn(u8) -> [u8; 2])\nwhere F: Fn() {\n    if x { y }\n}\ntype C = fn();\n";
    let found = Source::new("a.rs", text)
        .functions()
        .iter()
        .map(|f| (f.name.clone(), f.line, f.lines))
        .collect::<Vec<_>>();
    assert_eq!(found, [("b".to_owned(), 2, 4)]);
}

#[test]
fn tests_are_told_from_other_functions() {
    let text = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(flavor = \"x\")]\n/// Why.\nasync fn c() { inner(|| 1); }\nfn latest() {}";
    assert_eq!(Source::new("a.rs", text).test_names(), ["a", "c"]);
}

#[test]
fn inline_modules_can_be_left_out() {
    let source = Source::new("a.rs", "use a;\nmod b;\nmod tests {\n    use super::c;\n}\nuse d;");
    let code = source.code_outside_inline_modules();
    assert!(
        code.contains("use a")
            && code.contains("mod b;")
            && code.contains("use d")
            && !code.contains("super")
    );
}

#[test]
fn items_for_tests_can_be_left_out() {
    let text = "use a;\n#[cfg(test)]\nuse b::{c, d};\nimpl E {\n    #[cfg(test)]\n    fn f(&self) -> [u8; 2] { g() }\n    fn h() {}\n}\n#[cfg(test)]\nmod tests { use i; }\nuse j;";
    let source = Source::new("a.rs", text);
    let code = source.code_outside_tests();
    assert_eq!(code.len(), text.len());
    let left: Vec<_> = code.split_whitespace().collect();
    assert_eq!(left.join(" "), "use a; impl E { fn h() {} } } use j;");
}
