//! Error groups: dead events that died of the same error. What is the same is decided here for the
//! test kit, and by the functions `wakeq.error_fingerprint` and `wakeq.error_group` in Postgres.
//! The two must say the same of every error.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use super::HandlerScope;

/// Domain separation, as in the migrations.
const DOMAIN: &[u8] = b"wakeq error group";
/// How many characters of an error's first line are looked at, and how many a fingerprint has.
const LOOKED_AT: usize = 1000;
const FINGERPRINT_MAX: usize = 200;
/// What an error may begin with, and a fingerprint not end with.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];
/// What stands between two numbers that count as one: of an address, a moment or a version.
const JOINTS: [char; 6] = ['.', ',', ':', '_', '+', '-'];
/// How many hexadecimal digits the parts of a uuid have.
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// The id of an error group: of the dead events of a handler that died of the same cause, and whose
/// last errors are the same but for what varies. That is numbers and words with digits, uuids,
/// quoted texts and the queries of URLs. On every canvas the same error has the same id.
///
/// ```
/// use wakeq::control::ErrorGroupId;
/// use wakeq::{CanvasId, HandlerScope};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mail = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
/// let group = |error| ErrorGroupId::of(&mail, "retries", Some(error));
/// assert_eq!(group("no answer after 30s"), group("no answer after 120s"));
/// assert_ne!(group("no answer after 30s"), group("refused after 30s"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorGroupId(pub Uuid);

impl ErrorGroupId {
    /// The group of a dead event of this handler, with its cause, such as `retries`, and its last
    /// error.
    pub fn of(handler: &HandlerScope, cause: &str, error: Option<&str>) -> Self {
        let HandlerScope { module, name, .. } = handler;
        let fingerprint = error_fingerprint(error.unwrap_or_default());
        // Neither a name nor a cause has a slash.
        let text = format!("{module}/{name}/{cause}/{fingerprint}");
        let hash = Sha256::new().chain_update(DOMAIN).chain_update(text).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        Self(Builder::from_custom_bytes(bytes).into_uuid())
    }
}

displayed_as_uuid!(ErrorGroupId);

/// The first line of an error, with `#` for what varies, and at most 200 characters of it.
pub(crate) fn error_fingerprint(error: &str) -> String {
    let line = error.trim_start_matches(BLANKS).split('\n').next().unwrap_or_default();
    let line: Vec<char> = line.chars().take(LOOKED_AT).collect();
    let line = [quoted, query, number, joined].iter().fold(line, |line, varies| replaced(&line, *varies));
    let short: String = line.into_iter().take(FINGERPRINT_MAX).collect();
    short.trim_end_matches(BLANKS).to_owned()
}

/// The line with `by` instead of each part that varies, the first one first.
fn replaced(line: &[char], varies: impl Fn(&[char], usize) -> Option<(usize, &'static str)>) -> Vec<char> {
    let (mut new, mut at) = (Vec::with_capacity(line.len()), 0);
    while let Some(sign) = line.get(at) {
        match varies(line, at) {
            Some((length, by)) => {
                new.extend(by.chars());
                at += length;
            }
            None => {
                new.push(*sign);
                at += 1;
            }
        }
    }
    new
}

/// A quoted text. An apostrophe behind a letter or a digit begins none.
fn quoted(line: &[char], at: usize) -> Option<(usize, &'static str)> {
    let quote = *line.get(at)?;
    let before = at.checked_sub(1).and_then(|before| line.get(before));
    let begins = match quote {
        '"' | '`' => true,
        '\'' => !before.is_some_and(char::is_ascii_alphanumeric),
        _ => false,
    };
    let end = line.iter().skip(at + 1).position(|sign| *sign == quote).filter(|_| begins)?;
    Some((end + 2, "'#'"))
}

/// The query of a URL, up to the next space.
fn query(line: &[char], at: usize) -> Option<(usize, &'static str)> {
    line.get(at).filter(|sign| **sign == '?')?;
    let rest = line.iter().skip(at).take_while(|sign| **sign != ' ');
    let (mut length, mut has_value) = (0, false);
    for sign in rest {
        length += 1;
        has_value |= *sign == '=';
    }
    has_value.then_some((length, "?#"))
}

/// A uuid, or a word with a digit.
fn number(line: &[char], at: usize) -> Option<(usize, &'static str)> {
    if is_uuid(line, at) {
        return Some((UUID_PARTS.iter().sum::<usize>() + UUID_PARTS.len() - 1, "#"));
    }
    let word = line.iter().skip(at).take_while(|sign| sign.is_ascii_alphanumeric());
    let (mut length, mut has_digit) = (0, false);
    for sign in word {
        length += 1;
        has_digit |= sign.is_ascii_digit();
    }
    has_digit.then_some((length, "#"))
}

fn is_uuid(line: &[char], at: usize) -> bool {
    let mut rest = line.iter().skip(at);
    UUID_PARTS.iter().enumerate().all(|(part, length)| {
        (part == 0 || rest.next() == Some(&'-'))
            && rest.by_ref().take(*length).filter(|sign| sign.is_ascii_hexdigit()).count() == *length
    })
}

/// Several numbers with nothing but points, colons and the like between them.
fn joined(line: &[char], at: usize) -> Option<(usize, &'static str)> {
    let mut length = 0;
    while line.get(at + length) == Some(&'#') {
        let joints = line.iter().skip(at + length + 1).take_while(|sign| JOINTS.contains(sign)).count();
        length += 1 + joints;
        if joints == 0 || line.get(at + length) != Some(&'#') {
            length -= joints;
            break;
        }
    }
    (length > 1).then_some((length, "#"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CanvasId;

    #[test]
    fn what_varies_is_replaced() {
        let long = "x ".repeat(600);
        for (error, fingerprint) in [
            ("", ""),
            ("no such mailbox", "no such mailbox"),
            ("connection to 10.0.0.1:5432 refused after 1,500 ms", "connection to # refused after # ms"),
            ("  \n\tfirst line \r\nsecond 7", "first line"),
            ("no order 7f3a2b1c-abcd-abcd-abcd-abcdefabcdef", "no order #"),
            ("bad token `ab 1` near \"x\"", "bad token '#' near '#'"),
            ("can't open 'a b' of O'Brien's", "can't open '#' of O'Brien's"),
            ("an open \"quote of 5", "an open \"quote of #"),
            ("GET /v1/users/17/orders?token=a&b=c failed", "GET /#/users/#/orders?# failed"),
            ("why? a=b", "why? a=b"),
            ("at 2026-01-02T03:04:05.678Z: ord_8fK2xQ9 is late", "at #: ord_# is late"),
            ("HTTP2_PROTOCOL_ERROR (0xdeadbeef)", "#_PROTOCOL_ERROR (#)"),
            ("row #5 of 7-9.", "row ## of #."),
            ("größe7 wird 2×4", "größ# wird #×#"),
            (long.as_str(), "x ".repeat(100).trim_end()),
        ] {
            assert_eq!(error_fingerprint(error), fingerprint, "{error}");
        }
    }

    #[test]
    fn a_group_is_of_a_handler_and_a_cause() {
        let mail = HandlerScope::worker(CanvasId::DEFAULT, "mail").unwrap();
        let of = |name: &str, cause: &str, error: Option<&str>| {
            ErrorGroupId::of(&HandlerScope { name: name.parse().unwrap(), ..mail.clone() }, cause, error)
        };
        let group = of("mail", "retries", Some("timed out after 5 s"));
        assert_eq!(group, of("mail", "retries", Some("timed out after 17 s")));
        assert_eq!(of("mail", "poison", None), of("mail", "poison", Some(" ")));
        for other in [
            of("ship", "retries", Some("timed out after 5 s")),
            of("mail", "rejected", Some("timed out after 5 s")),
            of("mail", "retries", Some("refused after 5 s")),
            of("mail", "retries", None),
        ] {
            assert_ne!(other, group);
        }
        let elsewhere = HandlerScope { canvas: CanvasId(Uuid::from_u128(7)), ..mail };
        assert_eq!(ErrorGroupId::of(&elsewhere, "retries", Some("timed out after 5 s")), group);
    }
}
