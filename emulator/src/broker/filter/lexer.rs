//! Splits a filter's text into tokens, with their positions.
//!
//! It knows how tokens are written, not which may follow which.

use super::FilterError;

/// One token of a filter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Token {
    /// Letters, digits, hyphens and underscores.
    Word(String),
    /// The content of a quoted string, with its escapes resolved.
    Text(String),
    Open,
    Close,
    Comma,
    Colon,
    Dot,
    Equal,
    NotEqual,
    Minus,
}

impl Token {
    /// As shown to the author of the filter.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("'{word}'"),
            Self::Text(text) => format!("{text:?}"),
            Self::Open => "'('".to_owned(),
            Self::Close => "')'".to_owned(),
            Self::Comma => "','".to_owned(),
            Self::Colon => "':'".to_owned(),
            Self::Dot => "'.'".to_owned(),
            Self::Equal => "'='".to_owned(),
            Self::NotEqual => "'!='".to_owned(),
            Self::Minus => "'-'".to_owned(),
        }
    }
}

/// The tokens, each with the position of its first character.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next(tokens.last().map(|(_, token)| token))? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'text> {
    text: &'text str,
    /// In bytes, at the start of a character.
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// A key may begin with a hyphen, so a hyphen after `:` or `.` begins a key.
    fn next(&mut self, previous: Option<&Token>) -> Result<Option<(usize, Token)>, FilterError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.advance();
        }
        let start = self.at;
        let Some(first) = self.advance() else {
            return Ok(None);
        };
        let key_due = matches!(previous, Some(Token::Colon | Token::Dot));
        let token = match first {
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            ':' => Token::Colon,
            '.' => Token::Dot,
            '=' => Token::Equal,
            '-' if !key_due => Token::Minus,
            '!' if self.peek() == Some('=') => {
                self.advance();
                Token::NotEqual
            }
            '"' => Token::Text(self.string(start)?),
            _ if is_of_word(first) => {
                while self.peek().is_some_and(is_of_word) {
                    self.advance();
                }
                Token::Word(self.text[start..self.at].to_owned())
            }
            _ => return Err(FilterError::new(start, format!("unexpected character {first:?}"))),
        };
        Ok(Some((start, token)))
    }

    /// The rest of a string after its opening quotation mark, including the closing one.
    fn string(&mut self, start: usize) -> Result<String, FilterError> {
        // Escaped bytes may form a character together, so this is text only at the end.
        let mut bytes = Vec::new();
        loop {
            let at = self.at;
            match self.advance() {
                Some('"') => break,
                Some('\\') => self.escape(at, &mut bytes)?,
                Some(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                None => return Err(FilterError::new(start, "this string has no closing quotation mark")),
            }
        }
        String::from_utf8(bytes)
            .map_err(|_| FilterError::new(start, "the escapes in this string do not spell valid UTF-8"))
    }

    fn escape(&mut self, start: usize, bytes: &mut Vec<u8>) -> Result<(), FilterError> {
        let unknown = |escape: &str| FilterError::new(start, format!("unknown escape sequence '\\{escape}'"));
        let Some(kind) = self.advance() else {
            return Err(unknown(""));
        };
        let simple = match kind {
            '"' | '\'' | '\\' | '`' | '?' => kind,
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' | 'X' => return self.byte(start, 16, 2, 0).map(|byte| bytes.push(byte)),
            '0'..='3' => {
                let first = kind.to_digit(8).unwrap_or_default();
                return self.byte(start, 8, 2, first).map(|byte| bytes.push(byte));
            }
            'u' => self.character(start, 4)?,
            'U' => self.character(start, 8)?,
            other => return Err(unknown(&other.to_string())),
        };
        bytes.extend_from_slice(simple.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn byte(&mut self, start: usize, radix: u32, digits: usize, first: u32) -> Result<u8, FilterError> {
        let number = self.number(start, radix, digits, first)?;
        u8::try_from(number).map_err(|_| FilterError::new(start, "this escape sequence is more than a byte"))
    }

    fn character(&mut self, start: usize, digits: usize) -> Result<char, FilterError> {
        let number = self.number(start, 16, digits, 0)?;
        char::from_u32(number)
            .ok_or_else(|| FilterError::new(start, format!("there is no character U+{number:04X}")))
    }

    fn number(&mut self, start: usize, radix: u32, digits: usize, first: u32) -> Result<u32, FilterError> {
        let mut number = first;
        for _ in 0..digits {
            let digit = self.peek().and_then(|character| character.to_digit(radix)).ok_or_else(|| {
                FilterError::new(start, format!("this escape sequence needs {digits} digits of base {radix}"))
            })?;
            self.advance();
            number = number.wrapping_mul(radix).wrapping_add(digit);
        }
        Ok(number)
    }
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '-'
}
