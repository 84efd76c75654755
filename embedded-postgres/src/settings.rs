//! The settings of a session: how they are read and how they are applied.
//!
//! Every client has its own, and the one session has those of the client that has the turn.
//! Settings that are local to a transaction must never be among them, so they are read outside of
//! one.

use std::collections::BTreeMap;

use crate::frame::{Frame, frames};

/// By name; includes the client's user and role, if it is not the superuser.
pub(crate) type Settings = BTreeMap<String, String>;

const USER: &str = "session_authorization";
const ROLE: &str = "role";

/// Everything that distinguishes the session from a fresh one.
pub(crate) const SESSION_QUERY: &str = "
    select name, setting from pg_catalog.pg_settings where source = 'session'
    union all select 'session_authorization', session_user::text where session_user <> 'postgres'
    union all select 'role', pg_catalog.current_setting('role') where pg_catalog.current_setting('role') <> 'none'
    union all select '', 'locks' where exists (select from pg_catalog.pg_locks where locktype = 'advisory')";

/// The result of reading the session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionState {
    pub(crate) settings: Settings,
    /// Whether it holds locks that outlive the transaction.
    pub(crate) holds_locks: bool,
}

/// Parses the answer to [`SESSION_QUERY`]; `None` if it is an error.
pub(crate) fn parse_session(answer: &[u8]) -> Option<SessionState> {
    let frames = frames(answer);
    if frames.iter().any(|frame| frame.tag == b'E') {
        return None;
    }
    let mut settings: Settings = frames.iter().filter_map(pair).collect();
    let holds_locks = settings.remove("").is_some();
    Some(SessionState { settings, holds_locks })
}

/// A row of two texts.
pub(crate) fn pair(row: &Frame) -> Option<(String, String)> {
    if row.tag != b'D' {
        return None;
    }
    let mut rest = row.body.get(2..)?;
    let mut text = || {
        let (size, after) = rest.split_first_chunk::<4>()?;
        let size = usize::try_from(i32::from_be_bytes(*size)).ok()?;
        let text = after.get(..size)?;
        rest = &after[size..];
        Some(String::from_utf8_lossy(text).into_owned())
    };
    Some((text()?, text()?))
}

/// The statements that give the session exactly these settings. User and role come last, as only
/// the superuser may set some of the others. The user cannot be reset, because this engine started
/// without a login.
pub(crate) fn apply(settings: &Settings) -> String {
    let mut sql = "set session authorization postgres; set role none; reset all;".to_owned();
    let (who, others): (Vec<_>, Vec<_>) =
        settings.iter().partition(|(name, _)| [USER, ROLE].contains(&name.as_str()));
    for (name, value) in others.into_iter().chain(who.into_iter().rev()) {
        sql += &format!(" select pg_catalog.set_config({}, {}, false);", literal(name), literal(value));
    }
    sql
}

/// A text as an SQL literal, independent of `standard_conforming_strings`.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: &str) -> Frame {
        let mut body = 2_u16.to_be_bytes().to_vec();
        for text in [name, value] {
            body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            body.extend(text.as_bytes());
        }
        Frame::new(b'D', body)
    }

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn reads_session_settings_and_locks_from_the_answer() {
        let answer =
            [row("lock_timeout", "200"), row("search_path", ""), row("", "locks"), Frame::ready(b'I')];
        let bytes: Vec<u8> = answer.iter().flat_map(Frame::bytes).collect();
        let expected = SessionState {
            settings: settings(&[("lock_timeout", "200"), ("search_path", "")]),
            holds_locks: true,
        };
        assert_eq!(parse_session(&bytes), Some(expected));
        assert_eq!(parse_session(&Frame::error("ERROR", "XX000", "no").bytes()), None);
        let null = Frame::new(b'D', [&2_u16.to_be_bytes()[..], &[0, 0, 0, 1, b'a'], &[0xff; 4]].concat());
        assert_eq!(pair(&null), None);
    }

    #[test]
    fn settings_are_made_with_the_user_last() {
        let made = apply(&settings(&[("role", "b"), ("session_authorization", "a"), ("x.y", r"it's \ all")]));
        let expected = [
            "set session authorization postgres; set role none; reset all;",
            r"select pg_catalog.set_config(E'x.y', E'it''s \\ all', false);",
            "select pg_catalog.set_config(E'session_authorization', E'a', false);",
            "select pg_catalog.set_config(E'role', E'b', false);",
        ];
        assert_eq!(made, expected.join(" "));
    }
}
