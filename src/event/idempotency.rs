//! Keys under which a request takes effect once.

use super::CanvasId;

/// A key under which a request is answered once. Different holders may choose the same key.
#[derive(Clone, Debug)]
pub struct IdempotencyKey {
    pub(crate) canvas: CanvasId,
    pub(crate) holder: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Vec<u8>,
}

/// Why there can't be such an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidIdempotencyKey(&'static str);

impl IdempotencyKey {
    /// A key of 1 to 255 visible ASCII characters; the name of the holder who chose it, 1 to 200
    /// characters; and the fingerprint of the request, 1 to 64 bytes: a hash of everything that
    /// distinguishes it from other requests.
    ///
    /// ```
    /// use wakeq::CanvasId;
    /// use wakeq::events::IdempotencyKey;
    ///
    /// assert!(IdempotencyKey::new(CanvasId::DEFAULT, "billing", "order-17", b"a hash of the request").is_ok());
    /// assert!(IdempotencyKey::new(CanvasId::DEFAULT, "billing", "order 17", b"a hash of the request").is_err());
    /// ```
    pub fn new(
        canvas: CanvasId,
        holder: &str,
        key: &str,
        fingerprint: &[u8],
    ) -> Result<Self, InvalidIdempotencyKey> {
        if !(1..=255).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidIdempotencyKey(
                "an idempotency key must have 1 to 255 visible ASCII characters, without spaces",
            ));
        }
        if !(1..=200).contains(&holder.chars().count()) || holder.contains('\0') {
            return Err(InvalidIdempotencyKey(
                "the holder of an idempotency key must have 1 to 200 characters, none of them NUL",
            ));
        }
        if !(1..=64).contains(&fingerprint.len()) {
            return Err(InvalidIdempotencyKey("the fingerprint of a request must have 1 to 64 bytes"));
        }
        let (holder, key, fingerprint) = (holder.to_owned(), key.to_owned(), fingerprint.to_vec());
        Ok(Self { canvas, holder, key, fingerprint })
    }
}
