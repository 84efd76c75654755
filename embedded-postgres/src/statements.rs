//! The prepared statements of one client, which get names of their own in the session that all
//! clients share.
//!
//! A client must never see another's statement, nor one of these names, nor the answer to a message
//! that it did not send.

use std::collections::{BTreeMap, VecDeque};

use crate::frame::{Frame, frames, terminated};
use crate::sql;

/// Rewrites a client's messages on their way to the engine, and the answers on their way back.
#[derive(Debug)]
pub(crate) struct Statements {
    client: u32,
    /// By the client's name for a statement: whether it may change the session.
    open: BTreeMap<String, bool>,
    /// For every `Close` in flight, whether the client sent it.
    closing: VecDeque<bool>,
    may_have_changed: bool,
}

/// An answer as the client may see it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    /// The transaction's status, if the engine is ready for the next query.
    pub(crate) status: Option<u8>,
}

impl Statements {
    pub(crate) fn of(client: u32) -> Self {
        Self { client, open: BTreeMap::new(), closing: VecDeque::new(), may_have_changed: false }
    }

    /// Appends a client's message in the form for the engine.
    pub(crate) fn send(&mut self, frame: Frame, bytes: &mut Vec<u8>) {
        match self.renamed(&frame, bytes) {
            Some(renamed) => renamed.append_to(bytes),
            // It is malformed, or carries no statement name: the engine can answer it.
            None => frame.append_to(bytes),
        }
    }

    fn renamed(&mut self, frame: &Frame, bytes: &mut Vec<u8>) -> Option<Frame> {
        match frame.tag {
            b'Q' => {
                self.may_have_changed |= sql::may_change_session(frame.text(0)?);
                None
            }
            b'P' => {
                let name = frame.text(0)?;
                let text = frame.text(name.len() + 1)?;
                if name.is_empty() {
                    // The unnamed statement is replaced by the next one; a named one has to be
                    // closed first.
                    self.close(name).append_to(bytes);
                    self.closing.push_back(false);
                }
                self.open.insert(name.to_owned(), sql::may_change_session(text));
                Some(Frame::new(b'P', [self.own(name), frame.body[name.len() + 1..].to_vec()].concat()))
            }
            b'B' => {
                let portal = frame.text(0)?;
                let name = frame.text(portal.len() + 1)?;
                self.may_have_changed |= self.open.get(name).copied().unwrap_or(false);
                let rest = frame.body[portal.len() + name.len() + 2..].to_vec();
                Some(Frame::new(b'B', [terminated(portal), self.own(name), rest].concat()))
            }
            b'D' if frame.body.first() == Some(&b'S') => {
                Some(Frame::new(b'D', [vec![b'S'], self.own(frame.text(1)?)].concat()))
            }
            b'C' => {
                self.closing.push_back(true);
                if frame.body.first() != Some(&b'S') {
                    return None;
                }
                let name = frame.text(1)?;
                self.open.remove(name);
                Some(self.close(name))
            }
            _ => None,
        }
    }

    /// Removes the answers to our own messages.
    pub(crate) fn receive(&mut self, answer: &[u8]) -> Answer {
        let mut seen = Answer { bytes: Vec::with_capacity(answer.len()), status: None };
        for frame in frames(answer) {
            match frame.tag {
                b'3' if self.closing.pop_front() == Some(false) => continue,
                // The engine skips what follows an error, up to the end of the group.
                b'E' => self.closing.clear(),
                b'Z' => {
                    self.closing.clear();
                    seen.status = frame.body.first().copied();
                }
                _ => {}
            }
            frame.append_to(&mut seen.bytes);
        }
        seen
    }

    /// Whether the session may have changed since the last call.
    pub(crate) fn take_may_have_changed(&mut self) -> bool {
        std::mem::take(&mut self.may_have_changed)
    }

    /// The messages that free what this client leaves; `None` if it leaves nothing.
    pub(crate) fn cleanup(&mut self) -> Option<Vec<u8>> {
        let names: Vec<String> = std::mem::take(&mut self.open).into_keys().collect();
        let mut bytes: Vec<u8> = names.iter().flat_map(|name| self.close(name).bytes()).collect();
        if bytes.is_empty() {
            return None;
        }
        Frame::new(b'S', []).append_to(&mut bytes);
        Some(bytes)
    }

    fn close(&self, name: &str) -> Frame {
        Frame::new(b'C', [vec![b'S'], self.own(name)].concat())
    }

    fn own(&self, name: &str) -> Vec<u8> {
        terminated(&format!("{}_{name}", self.client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Frame {
        Frame::new(b'P', [terminated(name), terminated(text), vec![0, 0]].concat())
    }

    fn bind(portal: &str, name: &str) -> Frame {
        Frame::new(b'B', [terminated(portal), terminated(name), vec![0; 6]].concat())
    }

    fn named(tag: u8, name: &str) -> Frame {
        Frame::new(tag, [vec![b'S'], terminated(name)].concat())
    }

    fn sent(statements: &mut Statements, messages: &[Frame]) -> Vec<Frame> {
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| statements.send(message.clone(), &mut bytes));
        frames(&bytes)
    }

    fn bytes(messages: &[Frame]) -> Vec<u8> {
        messages.iter().flat_map(Frame::bytes).collect()
    }

    #[test]
    fn named_statements_get_the_clients_number() {
        let mut statements = Statements::of(7);
        let messages = [parse("a", "select 1"), named(b'D', "a"), bind("p", "a"), named(b'C', "a")];
        let expected = [parse("7_a", "select 1"), named(b'D', "7_a"), bind("p", "7_a"), named(b'C', "7_a")];
        assert_eq!(sent(&mut statements, &messages), expected);
        assert_eq!(statements.cleanup(), None, "it closed it itself");
    }

    #[test]
    fn closes_the_replaced_unnamed_statement_without_telling_the_client() {
        let mut statements = Statements::of(7);
        let out = sent(&mut statements, &[parse("", "select 1"), named(b'C', "x")]);
        assert_eq!(out, [named(b'C', "7_"), parse("7_", "select 1"), named(b'C', "7_x")]);
        let closed = Frame::new(b'3', []);
        let parsed = Frame::new(b'1', []);
        let answer =
            statements.receive(&bytes(&[closed.clone(), parsed.clone(), closed.clone(), Frame::ready(b'T')]));
        assert_eq!(answer.bytes, bytes(&[parsed, closed, Frame::ready(b'T')]));
        assert_eq!(answer.status, Some(b'T'));
    }

    #[test]
    fn an_error_discards_expected_answers_up_to_its_sync() {
        let mut statements = Statements::of(1);
        sent(&mut statements, &[parse("", "nonsense"), parse("", "select 1")]);
        let failed = [Frame::new(b'3', []), Frame::error("ERROR", "42601", "no"), Frame::ready(b'I')];
        assert_eq!(statements.receive(&bytes(&failed)).bytes, bytes(&failed[1..]));
        sent(&mut statements, &[named(b'C', "a")]);
        let closed = [Frame::new(b'3', []), Frame::ready(b'I')];
        assert_eq!(statements.receive(&bytes(&closed)).bytes, bytes(&closed));
    }

    #[test]
    fn closes_statements_that_a_client_leaves_open() {
        let mut statements = Statements::of(2);
        sent(&mut statements, &[parse("a", "select 1"), parse("b", "select 2")]);
        let cleanup = statements.cleanup().unwrap();
        assert_eq!(frames(&cleanup), [named(b'C', "2_a"), named(b'C', "2_b"), Frame::new(b'S', [])]);
        assert_eq!(statements.cleanup(), None);
    }

    #[test]
    fn a_statement_that_may_change_the_session_is_remembered_until_it_runs() {
        let mut statements = Statements::of(2);
        sent(&mut statements, &[parse("a", "select set_config('x', $1, false)"), parse("b", "select 1")]);
        assert!(!statements.take_may_have_changed());
        sent(&mut statements, &[bind("", "b")]);
        assert!(!statements.take_may_have_changed());
        sent(&mut statements, &[bind("", "a")]);
        assert!(statements.take_may_have_changed());
        sent(&mut statements, &[Frame::query("set a = 1")]);
        assert!(statements.take_may_have_changed());
        assert!(!statements.take_may_have_changed());
    }

    #[test]
    fn malformed_messages_pass_as_they_are() {
        let mut statements = Statements::of(2);
        let malformed = [Frame::new(b'P', *b"no end"), Frame::new(b'B', []), Frame::new(b'D', [])];
        assert_eq!(sent(&mut statements, &malformed), malformed);
    }
}
