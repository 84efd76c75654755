//! Globs over the topics of events, as Redis' psubscribe has them: `*`, `?`, `[abc]`, `[^a-z]` and
//! `\`.
//!
//! The matcher is our own, because globs of file names differ: their `*` stops at separators, and
//! braces are alternatives; and no library tells the literal prefix of a pattern, which filters
//! need.

use std::fmt;
use std::str::FromStr;

/// Longest pattern, in characters. The longest topic has 294.
const LENGTH_MAX: usize = 512;
/// Separates the parts of a topic.
const SEPARATOR: char = ':';

/// A glob over topics `canvas:module:name`, with up to 512 characters.
///
/// `*` matches any number of characters, including none, and `?` one character. `[abc]`, `[a-z]`
/// and `[^abc]` match one character that is, or is not, in the class. `\` makes the next character
/// literal. The whole topic has to match; case matters.
///
/// ```
/// use wakeq::listeners::TopicPattern;
///
/// let pages: TopicPattern = "*:page:*".parse().unwrap();
/// assert!(pages.matches("00000000-0000-0000-0000-000000000000:page:view"));
/// assert!(!pages.matches("00000000-0000-0000-0000-000000000000:email_event:page"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPattern {
    text: Box<str>,
    tokens: Vec<Token>,
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTopicPattern {
    /// It is empty.
    #[error("a pattern must not be empty: *:*:* matches every event")]
    Empty,
    /// It is too long.
    #[error("a pattern has at most {LENGTH_MAX} characters")]
    TooLong,
    /// A class is not closed.
    #[error("the [ at character {0} is not closed: write \\[ for the bracket itself")]
    OpenClass(usize),
    /// A class is empty.
    #[error("the [] at character {0} has nothing in it, so it matches nothing")]
    EmptyClass(usize),
    /// Nothing follows the last `\`.
    #[error("the pattern ends with \\: write \\\\ for the backslash itself")]
    OpenEscape,
    /// It has more parts than a topic.
    #[error("a topic is canvas:module:name, so a pattern with {0} colons matches none")]
    Parts(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// This character.
    Literal(char),
    /// Any one character.
    One,
    /// Any number of characters.
    Many,
    /// One character that is in one of the ranges or, if negated, in none.
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl TopicPattern {
    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole topic matches.
    pub fn matches(&self, topic: &str) -> bool {
        let (tokens, text) = (&self.tokens, topic.chars().collect::<Vec<_>>());
        let (mut token, mut at) = (0, 0);
        // Where to continue if what follows the last `*` does not match: it then takes one more
        // character.
        let mut again: Option<(usize, usize)> = None;
        while at < text.len() {
            match tokens.get(token) {
                Some(Token::Many) => {
                    again = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(one) if one.matches(text[at]) => {
                    (token, at) = (token + 1, at + 1);
                    continue;
                }
                Some(_) | None => {}
            }
            let Some((many, taken)) = again else { return false };
            again = Some((many, taken + 1));
            (token, at) = (many + 1, taken + 1);
        }
        tokens[token..].iter().all(|left| *left == Token::Many)
    }

    /// The literal prefix of canvas, module and name in the pattern, each with whether that is all
    /// of the part.
    #[cfg(any(feature = "pubsub", test))]
    pub(super) fn parts(&self) -> [(String, bool); 3] {
        let is_colon = |token: &Token| *token == Token::Literal(SEPARATOR);
        let mut parts: [(String, bool); 3] = Default::default();
        // If both colons are literal, no other token can match one.
        let has_all = self.tokens.iter().filter(|token| is_colon(token)).count() == parts.len() - 1;
        for (part, tokens) in parts.iter_mut().zip(self.tokens.split(is_colon)) {
            let literal = |token: &Token| if let Token::Literal(c) = token { Some(*c) } else { None };
            part.0 = tokens.iter().map_while(literal).collect();
            part.1 = part.0.chars().count() == tokens.len();
            if !part.1 && !has_all {
                break;
            }
        }
        if !has_all {
            // The last part that is written may stand for the beginning of several.
            let last = self.tokens.split(is_colon).count() - 1;
            parts[last].1 = false;
        }
        parts
    }
}

impl Token {
    fn matches(&self, character: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::One | Self::Many => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != *negated
            }
        }
    }
}

impl FromStr for TopicPattern {
    type Err = InvalidTopicPattern;

    fn from_str(text: &str) -> Result<Self, InvalidTopicPattern> {
        if text.is_empty() {
            return Err(InvalidTopicPattern::Empty);
        }
        // Bytes first, so that a long text is not scanned to find out that it is too long.
        if text.len() > 4 * LENGTH_MAX || text.chars().count() > LENGTH_MAX {
            return Err(InvalidTopicPattern::TooLong);
        }
        let characters: Vec<char> = text.chars().collect();
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(character) = characters.get(at) {
            let (token, next) = match character {
                '*' => (Token::Many, at + 1),
                '?' => (Token::One, at + 1),
                '\\' => match characters.get(at + 1) {
                    Some(escaped) => (Token::Literal(*escaped), at + 2),
                    None => return Err(InvalidTopicPattern::OpenEscape),
                },
                '[' => class(&characters, at)?,
                literal => (Token::Literal(*literal), at + 1),
            };
            if token != Token::Many || tokens.last() != Some(&Token::Many) {
                tokens.push(token);
            }
            at = next;
        }
        match tokens.iter().filter(|token| **token == Token::Literal(SEPARATOR)).count() {
            0..=2 => Ok(Self { text: text.into(), tokens }),
            colons => Err(InvalidTopicPattern::Parts(colons)),
        }
    }
}

/// The class that begins here, and where it ends. A range that is written in reverse is swapped.
fn class(characters: &[char], begin: usize) -> Result<(Token, usize), InvalidTopicPattern> {
    let open = InvalidTopicPattern::OpenClass(begin + 1);
    let negated = characters.get(begin + 1) == Some(&'^');
    let mut at = begin + 1 + usize::from(negated);
    let mut ranges = Vec::new();
    loop {
        match characters.get(at) {
            None => return Err(open),
            Some(']') if ranges.is_empty() => return Err(InvalidTopicPattern::EmptyClass(begin + 1)),
            Some(']') => return Ok((Token::Class { negated, ranges }, at + 1)),
            Some(_) => {}
        }
        let (first, next) = member(characters, at).ok_or_else(|| open.clone())?;
        at = next;
        let is_range = characters.get(at) == Some(&'-') && characters.get(at + 1).is_some_and(|c| *c != ']');
        if is_range {
            let (last, next) = member(characters, at + 1).ok_or_else(|| open.clone())?;
            ranges.push((first.min(last), first.max(last)));
            at = next;
        } else {
            ranges.push((first, first));
        }
    }
}

/// A character in a class, and where the next one is.
fn member(characters: &[char], at: usize) -> Option<(char, usize)> {
    match characters.get(at)? {
        '\\' => Some((*characters.get(at + 1)?, at + 2)),
        character => Some((*character, at + 1)),
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: &str = "00000000-0000-0000-0000-000000000000:page:view";

    fn matches(pattern: &str, topic: &str) -> bool {
        pattern.parse::<TopicPattern>().unwrap().matches(topic)
    }

    // Shows: DRV-19
    #[test]
    fn globs_mean_what_psubscribe_means_by_them() {
        for pattern in [
            "*:page:*",
            "*",
            "**",
            "*:*:*",
            PAGE,
            "0*:p?ge:v*w",
            "*:[op]age:*",
            "*:[a-p][^b]ge:*",
            "*:[p-a]age:*",
            r"*:\page:*",
            r"*:[\p]age:v[h-j]ew",
            "*page*",
            "*:page:view*",
            "*?:page:view",
        ] {
            assert!(matches(pattern, PAGE), "{pattern}");
        }
        for pattern in [
            "page",
            "*:page",
            "*:page:",
            "*:Page:*",
            "*:?:*",
            "*:[^p]age:*",
            "*:page:view?",
            "*:page:vie",
            r"\*",
        ] {
            assert!(!matches(pattern, PAGE), "{pattern}");
        }
        assert!(matches(r"a\*[\]-]\[", "a*][") && matches(r"a\*[\]-]\[", "a*-["));
        assert!(matches("[a-]", "-") && matches("h[^e]llo", "hallo") && !matches("h[^e]llo", "hello"));
    }

    #[test]
    fn rejects_invalid_patterns_with_the_position() {
        let refused = |text: &str| text.parse::<TopicPattern>().unwrap_err();
        assert_eq!(refused(""), InvalidTopicPattern::Empty);
        assert_eq!(refused("*:[ab"), InvalidTopicPattern::OpenClass(3));
        assert_eq!(refused(r"[\]"), InvalidTopicPattern::OpenClass(1));
        assert_eq!(refused("[a-"), InvalidTopicPattern::OpenClass(1));
        assert_eq!(refused("a[]"), InvalidTopicPattern::EmptyClass(2));
        assert_eq!(refused("a[^]b]"), InvalidTopicPattern::EmptyClass(2));
        assert_eq!(refused(r"a\"), InvalidTopicPattern::OpenEscape);
        assert_eq!(refused("*:*:*:*"), InvalidTopicPattern::Parts(3));
        assert_eq!(refused(&"x".repeat(513)), InvalidTopicPattern::TooLong);
        assert!("é".repeat(512).parse::<TopicPattern>().is_ok());
    }

    /// The worst case ends soon: the matcher only ever goes back to the last `*`.
    #[test]
    fn a_hostile_pattern_is_matched_quickly() {
        let pattern = format!("{}b", "*a".repeat(255));
        assert!(!matches(&pattern, &"a".repeat(294)));
    }

    #[test]
    fn patterns_yield_a_prefix_for_each_part() {
        let parts = |pattern: &str| {
            pattern.parse::<TopicPattern>().unwrap().parts().map(|(text, whole)| (text, whole)).map(
                |(text, whole)| {
                    if whole { text } else { format!("{text}…") }
                },
            )
        };
        assert_eq!(parts("*:page:*"), ["…", "page", "…"]);
        assert_eq!(parts("c-1:page:vi*"), ["c-1", "page", "vi…"]);
        assert_eq!(parts("*:p?ge:v[i]ew"), ["…", "p…", "v…"]);
        assert_eq!(parts("c-1:page*"), ["c-1", "page…", "…"]);
        assert_eq!(parts("c-*:page"), ["c-…", "…", "…"], "the star may be two parts");
        assert_eq!(parts("c-1*"), ["c-1…", "…", "…"]);
        assert_eq!(parts("c-1"), ["c-1…", "…", "…"], "it matches no topic");
        assert_eq!(parts("*"), ["…", "…", "…"]);
    }

    /// Redis' definition, literally, and slow.
    fn naive(tokens: &[Token], text: &[char]) -> bool {
        match (tokens.split_first(), text.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((Token::Many, rest)), _) => (0..=text.len()).any(|taken| naive(rest, &text[taken..])),
            (Some(_), None) => false,
            (Some((one, rest)), Some((first, left))) => one.matches(*first) && naive(rest, left),
        }
    }

    proptest! {
        // Shows: DRV-19
        #[test]
        fn it_matches_as_the_definition_does(pattern in r"([ab:*?]|\[\^?[ab]{1,2}\]|\[a-b\]|\\[ab*]){1,8}", text in "[ab:*]{0,7}") {
            if let Ok(pattern) = pattern.parse::<TopicPattern>() {
                let characters: Vec<char> = text.chars().collect();
                prop_assert_eq!(pattern.matches(&text), naive(&pattern.tokens, &characters));
            }
        }

        /// A filter made of the parts must never hide a topic that the pattern matches.
        #[test]
        fn the_prefixes_hold_for_every_matching_topic(
            pattern in r"([abc:*?]|\[\^?[ab]{1,2}\]){1,9}",
            topic in "[ab]{1,3}:[ab]{1,3}:[ab]{1,3}",
        ) {
            if let Ok(pattern) = pattern.parse::<TopicPattern>()
                && pattern.matches(&topic)
            {
                for ((begin, whole), part) in pattern.parts().iter().zip(topic.split(':')) {
                    prop_assert!(if *whole { part == begin } else { part.starts_with(begin.as_str()) }, "{} {:?}", pattern, pattern.parts());
                }
            }
        }

        #[test]
        fn nothing_makes_it_panic(pattern in ".{0,40}", text in ".{0,40}") {
            if let Ok(pattern) = pattern.parse::<TopicPattern>() {
                pattern.matches(&text);
                pattern.parts();
            }
        }
    }
}
