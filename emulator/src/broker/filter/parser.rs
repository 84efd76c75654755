//! Parses the tokens of a filter by the grammar.
//!
//! It decides what is a filter, not what passes it.

use std::fmt;

use super::Condition;
use super::lexer::{self, Token};

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) struct FilterError {
    /// In bytes, from zero.
    at: usize,
    problem: String,
}

impl FilterError {
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into() }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "at byte {}: {}", self.at, self.problem)
    }
}

/// Parses a whole filter.
pub(super) fn parse(text: &str) -> Result<Condition, FilterError> {
    let mut parser = Parser { tokens: lexer::tokens(text)?, next: 0, end: text.len(), depth: 0 };
    let filter = parser.filter()?;
    if parser.peek().is_some() {
        return Err(parser.unexpected("AND, OR, or the end"));
    }
    Ok(filter)
}

/// A filter has at most 256 bytes, so it cannot be nested deeper; the parser has its own limit
/// nevertheless.
const DEEPEST: usize = 256;

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// The position of the text's end.
    end: usize,
    depth: usize,
}

/// What joins conditions.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Joint {
    And,
    Or,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn unexpected(&self, due: &str) -> FilterError {
        let found = self.peek().map_or_else(|| "the end".to_owned(), Token::shown);
        FilterError::new(self.at(), format!("expected {due}, found {found}"))
    }

    fn expect(&mut self, token: &Token, shown: &str) -> Result<(), FilterError> {
        if self.peek() != Some(token) {
            return Err(self.unexpected(shown));
        }
        self.next += 1;
        Ok(())
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found == word)
    }

    fn joint(&self) -> Option<Joint> {
        if self.is_word("AND") {
            Some(Joint::And)
        } else if self.is_word("OR") {
            Some(Joint::Or)
        } else {
            None
        }
    }

    fn filter(&mut self) -> Result<Condition, FilterError> {
        let first = self.condition()?;
        let Some(joint) = self.joint() else {
            return Ok(first);
        };
        let mut conditions = vec![first];
        while let Some(found) = self.joint() {
            if found != joint {
                return Err(FilterError::new(
                    self.at(),
                    "AND and OR can only be combined with parentheses around one of them",
                ));
            }
            self.next += 1;
            conditions.push(self.condition()?);
        }
        Ok(match joint {
            Joint::And => Condition::All(conditions),
            Joint::Or => Condition::Any(conditions),
        })
    }

    /// A negation applies to the one comparison or the parentheses that follow it.
    fn condition(&mut self) -> Result<Condition, FilterError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(FilterError::new(self.at(), "too deeply nested"));
        }
        let condition = if self.is_word("NOT") || self.peek() == Some(&Token::Minus) {
            self.next += 1;
            Condition::Not(Box::new(self.condition()?))
        } else if self.peek() == Some(&Token::Open) {
            self.next += 1;
            let filter = self.filter()?;
            self.expect(&Token::Close, "')', AND, or OR")?;
            filter
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn comparison(&mut self) -> Result<Condition, FilterError> {
        if self.is_word("hasPrefix") {
            self.next += 1;
            return self.prefix();
        }
        self.attributes("attributes, hasPrefix, NOT, or '('")?;
        if self.peek() == Some(&Token::Colon) {
            self.next += 1;
            return Ok(Condition::Has { key: self.key()? });
        }
        self.expect(&Token::Dot, "':' or '.' after attributes")?;
        let key = self.key()?;
        let negated = match self.peek() {
            Some(Token::Equal) => false,
            Some(Token::NotEqual) => true,
            Some(_) | None => return Err(self.unexpected("'=' or '!=' after the key")),
        };
        self.next += 1;
        let is = Condition::Is { key, value: self.string("a value in quotation marks")? };
        Ok(if negated { Condition::Not(Box::new(is)) } else { is })
    }

    fn prefix(&mut self) -> Result<Condition, FilterError> {
        self.expect(&Token::Open, "'(' after hasPrefix")?;
        self.attributes("attributes")?;
        self.expect(&Token::Dot, "'.' after attributes")?;
        let key = self.key()?;
        self.expect(&Token::Comma, "',' after the key")?;
        let prefix = self.string("a prefix in quotation marks")?;
        self.expect(&Token::Close, "')' after the prefix")?;
        Ok(Condition::HasPrefix { key, prefix })
    }

    fn attributes(&mut self, due: &str) -> Result<(), FilterError> {
        if !self.is_word("attributes") {
            return Err(self.unexpected(due));
        }
        self.next += 1;
        Ok(())
    }

    fn key(&mut self) -> Result<String, FilterError> {
        let (Some(Token::Word(key)) | Some(Token::Text(key))) = self.peek() else {
            return Err(self.unexpected("an attribute's key"));
        };
        let key = key.clone();
        self.next += 1;
        Ok(key)
    }

    fn string(&mut self, due: &str) -> Result<String, FilterError> {
        let Some(Token::Text(text)) = self.peek() else {
            return Err(self.unexpected(due));
        };
        let text = text.clone();
        self.next += 1;
        Ok(text)
    }
}
