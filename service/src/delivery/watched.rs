//! Watches a connection, to learn whether the server closed it in the moment in which it was used
//! again. Changes nothing that passes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The record of a connection, shared with the client that uses it.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// An earlier request was answered.
    is_reused: AtomicBool,
    /// Something was read since the last write.
    is_answered: AtomicBool,
}

impl Passed {
    /// Whether a request was sent on it after another had been answered, and nothing came back.
    pub(super) fn is_unanswered_reuse(&self) -> bool {
        self.0.is_reused.load(Ordering::SeqCst) && !self.0.is_answered.load(Ordering::SeqCst)
    }

    fn wrote(&self) {
        if self.0.is_answered.swap(false, Ordering::SeqCst) {
            self.0.is_reused.store(true, Ordering::SeqCst);
        }
    }

    fn read(&self) {
        self.0.is_answered.store(true, Ordering::SeqCst);
    }
}

/// A connection that notes what passes.
pub(super) struct Watched<T> {
    io: T,
    passed: Passed,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, passed: Passed::default() }
    }

    pub(super) fn passed(&self) -> Passed {
        self.passed.clone()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.passed.read();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.passed.wrote();
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn only_a_second_request_without_a_byte_of_an_answer_counts() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Watched::new(near);
        let passed = near.passed();
        near.write_all(b"first").await.unwrap();
        assert!(!passed.is_unanswered_reuse(), "it is a new connection");
        far.write_all(b"an").await.unwrap();
        near.read_exact(&mut [0; 2]).await.unwrap();
        assert!(!passed.is_unanswered_reuse());
        near.write_all(b"second").await.unwrap();
        assert!(passed.is_unanswered_reuse());
        near.write_all(b"and the rest of it").await.unwrap();
        assert!(passed.is_unanswered_reuse());
        far.write_all(b"a").await.unwrap();
        near.read_exact(&mut [0; 1]).await.unwrap();
        assert!(!passed.is_unanswered_reuse(), "an answer began");
    }
}
