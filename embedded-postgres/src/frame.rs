//! The frames of Postgres's wire protocol: reads them from a stream, looks into them, and writes
//! them.
//!
//! It must never know what a frame is for, and never hold more of a client's bytes than one frame
//! may have.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest message of a client.
pub(crate) const LONGEST_BYTES: usize = 64 * 1024 * 1024;
/// The longest startup packet, as in Postgres.
const LONGEST_STARTUP_BYTES: usize = 10_000;
/// Tag and length.
const HEAD_BYTES: usize = 5;

/// One message after the startup: its tag, and what follows the length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(tag: u8, body: impl Into<Vec<u8>>) -> Self {
        Self { tag, body: body.into() }
    }

    /// A simple query.
    pub(crate) fn query(sql: &str) -> Self {
        Self::new(b'Q', terminated(sql))
    }

    /// ReadyForQuery: `I` outside of a transaction, `T` inside one, `E` inside a failed one.
    pub(crate) fn ready(status: u8) -> Self {
        Self::new(b'Z', [status])
    }

    /// An error, with the fields that every client reads.
    pub(crate) fn error(severity: &str, code: &str, message: &str) -> Self {
        let mut body = Vec::new();
        for (field, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', message)] {
            body.push(field);
            body.extend(terminated(value));
        }
        body.push(0);
        Self::new(b'E', body)
    }

    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.tag);
        bytes.extend(length(self.body.len()));
        bytes.extend(&self.body);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.body.len());
        self.append_to(&mut bytes);
        bytes
    }

    /// The zero-terminated text that begins at this byte of the body.
    pub(crate) fn text(&self, start: usize) -> Option<&str> {
        let rest = self.body.get(start..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    }
}

/// The text and its terminating zero.
pub(crate) fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn length(body: usize) -> [u8; 4] {
    // No body exceeds what a client may send or the engine can hold.
    u32::try_from(body + 4).unwrap_or(u32::MAX).to_be_bytes()
}

/// The frames in an answer of the engine, which always consists of whole frames.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut found = Vec::new();
    while let Ok(Some((frame, size))) = first(bytes, usize::MAX) {
        found.push(frame);
        bytes = &bytes[size..];
    }
    found
}

/// The first frame and its size in bytes; `None` if it is incomplete.
fn first(bytes: &[u8], longest: usize) -> io::Result<Option<(Frame, usize)>> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [tag, size @ ..] = *head;
    let size = u32::from_be_bytes(size) as usize;
    if size < 4 || size - 4 > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of an impossible length"));
    }
    Ok(rest.get(..size - 4).map(|body| (Frame::new(tag, body), size + 1)))
}

/// The stream of a client's frames. Every wait can be cancelled without losing a byte.
#[derive(Debug)]
pub(crate) struct Inbox<R> {
    reader: R,
    bytes: Vec<u8>,
    read: usize,
}

impl<R: AsyncRead + Unpin> Inbox<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, bytes: Vec::new(), read: 0 }
    }

    /// What follows the length of a packet without a tag; `None` if the client has gone.
    pub(crate) async fn startup(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let unread = &self.bytes[self.read..];
            if let Some((head, rest)) = unread.split_first_chunk::<4>() {
                let size = u32::from_be_bytes(*head) as usize;
                if !(8..=LONGEST_STARTUP_BYTES).contains(&size) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "not a startup packet"));
                }
                if let Some(body) = rest.get(..size - 4) {
                    let body = body.to_vec();
                    self.read += size;
                    return Ok(Some(body));
                }
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// The next frame; `None` if the client has gone.
    pub(crate) async fn frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some((frame, size)) = first(&self.bytes[self.read..], LONGEST_BYTES)? {
                self.read += size;
                return Ok(Some(frame));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Returns once the client has gone; buffers what it sends until then, up to a limit.
    pub(crate) async fn gone(&mut self) {
        loop {
            if self.bytes.len() - self.read > LONGEST_BYTES {
                return std::future::pending().await;
            }
            if !matches!(self.more().await, Ok(true)) {
                return;
            }
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.read);
        self.read = 0;
        Ok(self.reader.read_buf(&mut self.bytes).await? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_out_whole_however_the_bytes_arrive() {
        let (mut client, server) = tokio::io::duplex(3);
        let sent = [Frame::query("select 1"), Frame::new(b'S', []), Frame::new(b'X', [])];
        let bytes: Vec<u8> = sent.iter().flat_map(Frame::bytes).collect();
        let writer = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut client, &bytes).await.unwrap();
        });
        let mut inbox = Inbox::new(server);
        for expected in sent {
            assert_eq!(inbox.frame().await.unwrap(), Some(expected));
        }
        assert_eq!(inbox.frame().await.unwrap(), None);
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn impossible_lengths_are_refused() {
        let too_short: &[u8] = b"Q\0\0\0\x03";
        let too_long: &[u8] = b"Q\xff\xff\xff\xff";
        for bytes in [too_short, too_long] {
            assert!(Inbox::new(bytes).frame().await.is_err());
        }
        let startup: &[u8] = b"GET / HTTP/1.1\r\n";
        assert!(Inbox::new(startup).startup().await.is_err());
    }

    #[tokio::test]
    async fn waiting_for_disconnect_loses_no_frames() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut inbox = Inbox::new(server);
        let query = Frame::query("select 1");
        tokio::io::AsyncWriteExt::write_all(&mut client, &query.bytes()).await.unwrap();
        tokio::select! {
            biased;
            () = inbox.gone() => panic!("it has not gone"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(inbox.frame().await.unwrap(), Some(query));
        drop(client);
        inbox.gone().await;
    }

    #[test]
    fn an_answer_is_cut_into_its_frames() {
        let answer = [Frame::error("ERROR", "42601", "no"), Frame::ready(b'I')];
        let bytes: Vec<u8> = answer.iter().flat_map(Frame::bytes).collect();
        assert_eq!(frames(&bytes), answer);
        assert_eq!(answer[0].text(1), Some("ERROR"));
    }
}
