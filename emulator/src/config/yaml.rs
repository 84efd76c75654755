//! YAML, as far as configuration files need it: mappings, lists, texts, numbers, `true`, `false`
//! and `null`, in blocks or in JSON's form, with comments, and with `|` for texts of several lines.
//!
//! It never guesses. Whatever else YAML has is refused with its line, such as anchors, tags, `>`,
//! several documents, and a text that goes on on the next line. Words mean what YAML 1.2 says, so
//! `no` is a text.

mod flow;
mod scalar;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use flow::Flow;
use scalar::{quoted, unquoted, without_comment};

/// How deep values may be nested.
const DEPTH_MAX: usize = 64;

/// A value, and the line where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Mapping(BTreeMap<String, Node>),
}

/// What can't be read, and where.
#[derive(Debug, thiserror::Error)]
#[error("YAML error at line {line}: {words}")]
pub(super) struct YamlError {
    line: usize,
    words: String,
}

type Read<T> = Result<T, YamlError>;

impl Node {
    fn null(line: usize) -> Self {
        Self { line, content: Content::Scalar(Value::Null) }
    }

    /// The same without lines.
    pub(super) fn into_value(self) -> Value {
        match self.content {
            Content::Scalar(value) => value,
            Content::List(items) => items.into_iter().map(Self::into_value).collect(),
            Content::Mapping(entries) => {
                Value::Object(entries.into_iter().map(|(key, node)| (key, node.into_value())).collect())
            }
        }
    }
}

impl YamlError {
    pub(super) fn new(line: usize, words: impl ToString) -> Self {
        Self { line, words: words.to_string() }
    }
}

/// Reads a document. An empty one is an empty mapping.
pub(super) fn parse(text: &str) -> Read<Node> {
    Reader::new(text.trim_start_matches('\u{feff}')).document()
}

struct Reader<'a> {
    text: &'a str,
    /// Each line of the text without its end, and where it begins.
    rows: Vec<(usize, &'a str)>,
    /// The lines that have something besides a comment.
    lines: Vec<Line>,
    /// The next one.
    at: usize,
}

/// The rest of a line, or all of it.
#[derive(Clone, Copy)]
struct Line {
    /// From 1 on.
    number: usize,
    /// How many bytes are before it.
    indent: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let (mut rows, mut lines, mut start) = (Vec::new(), Vec::new(), 0);
        for (number, row) in (1..).zip(text.split_inclusive('\n')) {
            let whole = row.trim_end_matches(['\n', '\r']);
            let content = whole.trim();
            if !content.is_empty() && !content.starts_with('#') {
                lines.push(Line { number, indent: leading_spaces(whole) });
            }
            rows.push((start, whole));
            start += row.len();
        }
        Self { text, rows, lines, at: 0 }
    }

    fn document(mut self) -> Read<Node> {
        if let Some(first) = self.next()
            && without_comment(self.content(first)?) == "---"
        {
            self.at += 1;
        }
        let Some(first) = self.next() else {
            return Ok(Node { line: 1, content: Content::Mapping(BTreeMap::new()) });
        };
        let node = self.block(first, None, 0)?;
        match self.next() {
            Some(line) => Err(YamlError::new(line.number, "this belongs to nothing before it")),
            None => Ok(node),
        }
    }

    fn next(&self) -> Option<Line> {
        self.lines.get(self.at).copied()
    }

    fn content(&self, line: Line) -> Read<&'a str> {
        let content = self.rows[line.number - 1].1[line.indent..].trim_end();
        if content.starts_with('\t') {
            return Err(YamlError::new(line.number, "lines are indented with spaces, and not with tabs"));
        }
        Ok(content)
    }

    /// The value that begins with the next line. What it belongs to is indented by `parent`.
    fn block(&mut self, line: Line, parent: Option<usize>, depth: usize) -> Read<Node> {
        check_depth(line.number, depth)?;
        let content = self.content(line)?;
        if is_item(content) {
            self.list(line, depth)
        } else if key(line.number, content)?.is_some() {
            self.mapping(line, depth)
        } else {
            self.inline(line, parent, depth)
        }
    }

    fn list(&mut self, first: Line, depth: usize) -> Read<Node> {
        let mut items = Vec::new();
        while let Some(line) = self.next().filter(|line| line.indent == first.indent) {
            if !is_item(self.content(line)?) {
                break;
            }
            items.push(self.value(line, 1, false, depth)?);
        }
        self.check_indent(first.indent)?;
        Ok(Node { line: first.number, content: Content::List(items) })
    }

    fn mapping(&mut self, first: Line, depth: usize) -> Read<Node> {
        let mut entries = BTreeMap::new();
        while let Some(line) = self.next().filter(|line| line.indent == first.indent) {
            let content = self.content(line)?;
            let (key, rest) = key(line.number, content)?
                .filter(|_| !is_item(content))
                .ok_or_else(|| YamlError::new(line.number, "a key is expected, as in `name: orders`"))?;
            let value = self.value(line, rest, true, depth)?;
            insert(&mut entries, line.number, key, value)?;
        }
        self.check_indent(first.indent)?;
        Ok(Node { line: first.number, content: Content::Mapping(entries) })
    }

    /// What follows a key or the dash of an item, so many bytes into a line.
    fn value(&mut self, line: Line, rest: usize, of_key: bool, depth: usize) -> Read<Node> {
        let content = self.content(line)?;
        let text = content[rest..].trim_start();
        if text.is_empty() || text.starts_with('#') {
            self.at += 1;
            let Some(next) = self.next() else { return Ok(Node::null(line.number)) };
            let is_list = of_key && next.indent == line.indent && is_item(self.content(next)?);
            if next.indent > line.indent || is_list {
                return self.block(next, Some(line.indent), depth + 1);
            }
            return Ok(Node::null(line.number));
        }
        let inner = Line { indent: line.indent + content.len() - text.len(), ..line };
        if of_key {
            return self.inline(inner, Some(line.indent), depth + 1);
        }
        // The first entry of a mapping may stand beside the dash.
        self.lines[self.at] = inner;
        self.block(inner, Some(line.indent), depth + 1)
    }

    /// A value that is not a block of its own.
    fn inline(&mut self, line: Line, parent: Option<usize>, depth: usize) -> Read<Node> {
        let content = self.content(line)?;
        let number = line.number;
        let scalar = if content.starts_with('|') {
            self.literal(line, without_comment(&content[1..]), parent)?
        } else if content.starts_with(['[', '{']) {
            return self.flow(line, depth);
        } else if content.starts_with(['"', '\'']) {
            let (text, length) = quoted(content).map_err(|words| YamlError::new(number, words))?;
            check_end(number, &content[length..])?;
            self.at += 1;
            Value::String(text)
        } else {
            self.at += 1;
            unquoted(without_comment(content)).map_err(|words| YamlError::new(number, words))?
        };
        Ok(Node { line: number, content: Content::Scalar(scalar) })
    }

    /// The text below a `|`, as it stands there.
    fn literal(&mut self, line: Line, end: &str, parent: Option<usize>) -> Read<Value> {
        let rows = self.rows[line.number..].iter().map(|(_, row)| *row);
        let least = parent.map_or(0, |parent| parent + 1);
        let indent = rows.clone().find(|row| !row.trim().is_empty()).map_or(0, leading_spaces).max(least);
        let of_text: Vec<&str> =
            rows.take_while(|row| row.trim().is_empty() || leading_spaces(row) >= indent).collect();
        let mut text: String =
            of_text.iter().flat_map(|row| [row.get(indent..).unwrap_or(""), "\n"]).collect();
        match end {
            "" => {
                text.truncate(text.trim_end_matches('\n').len());
                if !text.is_empty() {
                    text.push('\n');
                }
            }
            "-" => text.truncate(text.trim_end_matches('\n').len()),
            "+" => {}
            _ => return Err(YamlError::new(line.number, "only `|`, `|-` and `|+` are read")),
        }
        self.skip_to(line.number + of_text.len());
        Ok(Value::String(text))
    }

    /// A value in JSON's form, which may go on on the next lines.
    fn flow(&mut self, line: Line, depth: usize) -> Read<Node> {
        let mut flow = Flow::new(self.text, self.rows[line.number - 1].0 + line.indent, line.number);
        let node = flow.value(depth)?;
        check_end(flow.line(), flow.rest_of_line())?;
        self.skip_to(flow.line());
        Ok(node)
    }

    /// Goes on after the line with this number.
    fn skip_to(&mut self, number: usize) {
        while self.next().is_some_and(|line| line.number <= number) {
            self.at += 1;
        }
    }

    fn check_indent(&self, indent: usize) -> Read<()> {
        match self.next() {
            Some(line) if line.indent > indent => Err(YamlError::new(
                line.number,
                "its indentation fits to nothing before it; a text of several lines needs `|`",
            )),
            Some(_) | None => Ok(()),
        }
    }
}

fn leading_spaces(row: &str) -> usize {
    row.len() - row.trim_start_matches(' ').len()
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}

/// The key that a line begins with, if there is one, and where what follows its colon begins.
fn key(number: usize, content: &str) -> Read<Option<(String, usize)>> {
    let refuse = |words: &str| YamlError::new(number, words);
    if content.starts_with(['"', '\'']) {
        let (key, length) = quoted(content).map_err(|words| refuse(&words))?;
        let after = content[length..].trim_start().strip_prefix(':');
        let after = after.filter(|after| after.is_empty() || after.starts_with([' ', '\t']));
        return Ok(after.map(|after| (key, content.len() - after.len())));
    }
    if content.starts_with(['[', '{', '|']) {
        return Ok(None);
    }
    let text = without_comment(content);
    let is_end = |at: usize| text[at + 1..].is_empty() || text[at + 1..].starts_with([' ', '\t']);
    let colon = text.match_indices(':').map(|(at, _)| at).find(|at| is_end(*at));
    let Some(colon) = colon else { return Ok(None) };
    match unquoted(text[..colon].trim_end()) {
        Ok(_) if colon > 0 => Ok(Some((text[..colon].trim_end().to_owned(), colon + 1))),
        Ok(_) => Err(refuse("there is no key before the colon")),
        Err(words) => Err(refuse(&words)),
    }
}

fn insert(entries: &mut BTreeMap<String, Node>, number: usize, key: String, value: Node) -> Read<()> {
    if entries.contains_key(&key) {
        return Err(YamlError::new(number, format!("`{key}` is there twice")));
    }
    entries.insert(key, value);
    Ok(())
}

fn check_depth(number: usize, depth: usize) -> Read<()> {
    if depth > DEPTH_MAX {
        return Err(YamlError::new(number, format!("more than {DEPTH_MAX} values are nested")));
    }
    Ok(())
}

fn check_end(number: usize, rest: &str) -> Read<()> {
    if without_comment(rest).is_empty() {
        return Ok(());
    }
    Err(YamlError::new(number, format!("nothing is expected here, and there is `{}`", rest.trim())))
}
