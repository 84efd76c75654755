//! Values in JSON's form, in which texts need no quotes.

use std::collections::BTreeMap;

use super::scalar::{quoted, unquoted};
use super::{Content, Node, Read, YamlError, check_depth, insert};

/// What ends a text without quotes.
const MARKS: [char; 5] = [',', '[', ']', '{', '}'];

pub(super) struct Flow<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Flow<'a> {
    /// From this byte of a text on, which is in this line.
    pub(super) fn new(text: &'a str, at: usize, line: usize) -> Self {
        Self { text, at, line }
    }

    /// The line that was reached.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// What was not read of it.
    pub(super) fn rest_of_line(&self) -> &'a str {
        self.rest().lines().next().unwrap_or_default()
    }

    pub(super) fn value(&mut self, depth: usize) -> Read<Node> {
        self.skip();
        let line = self.line;
        check_depth(line, depth)?;
        let content = if self.takes('[') {
            self.list(depth)?
        } else if self.takes('{') {
            self.mapping(depth)?
        } else if self.rest().starts_with(['"', '\'']) {
            Content::Scalar(self.quoted()?.into())
        } else {
            let text = self.unquoted()?;
            Content::Scalar(unquoted(text).map_err(|words| self.refuse(&words))?)
        };
        Ok(Node { line, content })
    }

    fn list(&mut self, depth: usize) -> Read<Content> {
        let mut items = Vec::new();
        loop {
            self.skip();
            if self.takes(']') {
                return Ok(Content::List(items));
            }
            items.push(self.value(depth + 1)?);
            self.skip();
            if !self.takes(',') && !self.rest().starts_with(']') {
                return Err(self.refuse("`,` or `]` is expected"));
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Read<Content> {
        let mut entries = BTreeMap::new();
        loop {
            self.skip();
            if self.takes('}') {
                return Ok(Content::Mapping(entries));
            }
            let line = self.line;
            let is_quoted = self.rest().starts_with(['"', '\'']);
            let key = if is_quoted { self.quoted()? } else { self.unquoted()?.to_owned() };
            self.skip();
            if !self.takes(':') {
                return Err(self.refuse("`:` is expected"));
            }
            self.skip();
            let is_missing = self.rest().starts_with([',', '}']);
            let value = if is_missing { Node::null(self.line) } else { self.value(depth + 1)? };
            insert(&mut entries, line, key, value)?;
            self.skip();
            if !self.takes(',') && !self.rest().starts_with('}') {
                return Err(self.refuse("`,` or `}` is expected"));
            }
        }
    }

    fn quoted(&mut self) -> Read<String> {
        let (text, length) = quoted(self.rest()).map_err(|words| self.refuse(&words))?;
        self.at += length;
        Ok(text)
    }

    /// A text without quotes, which ends on its line.
    fn unquoted(&mut self) -> Read<&'a str> {
        let rest = self.rest_of_line();
        let is_end = |at: usize, mark: char| match mark {
            ':' => {
                rest[at + 1..].is_empty() || rest[at + 1..].starts_with([' ', '\t', ',', '[', ']', '{', '}'])
            }
            '#' => rest[..at].ends_with([' ', '\t']),
            _ => MARKS.contains(&mark),
        };
        let end = rest.char_indices().find(|(at, mark)| is_end(*at, *mark));
        let text = &rest[..end.map_or(rest.len(), |(at, _)| at)];
        if text.trim().is_empty() {
            return Err(self.refuse("a value is expected"));
        }
        self.at += text.len();
        Ok(text.trim())
    }

    /// Passes over blanks, ends of lines and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            match rest.chars().next() {
                Some('\n') => {
                    self.line += 1;
                    self.at += 1;
                }
                Some(' ' | '\t' | '\r') => self.at += 1,
                Some('#') if self.text[..self.at].ends_with([' ', '\t', '\n']) => {
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                Some(_) | None => return,
            }
        }
    }

    fn takes(&mut self, mark: char) -> bool {
        let takes = self.rest().starts_with(mark);
        self.at += usize::from(takes);
        takes
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn refuse(&self, words: &str) -> YamlError {
        YamlError::new(self.line, words)
    }
}
