//! The body of a request: an event's value, passed to the connection in pieces, so that it is in
//! memory only once.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// Piece size in bytes; the connection copies each piece.
const PIECE: usize = 16 * 1024;

/// The part that has not been sent yet. A clone is the same memory.
#[derive(Clone)]
pub(super) struct Value(Bytes);

impl Value {
    pub(super) fn new(json: String) -> Self {
        Self(json.into())
    }
}

impl Body for Value {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let rest = &mut self.get_mut().0;
        let piece = rest.split_to(rest.len().min(PIECE));
        Poll::Ready((!piece.is_empty()).then_some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_value_is_sent_in_pieces_of_itself() {
        let json = "x".repeat(2 * PIECE + 1);
        let begin = json.as_ptr();
        let mut value = Value::new(json);
        assert_eq!(value.size_hint().exact(), Some(2 * PIECE as u64 + 1));
        let first = value.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.as_ptr(), first.len()), (begin, PIECE), "nothing was copied");
        assert_eq!(value.collect().await.unwrap().to_bytes().len(), PIECE + 1);
    }
}
