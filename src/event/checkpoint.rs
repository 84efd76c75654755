//! What an attempt leaves to the next attempt of its event, and what it may be.

use super::Timestamp;
use super::json::{JsonError, check};

/// The last checkpoint of an event.
///
/// ```no_run
/// # async fn example(admin: wakeq::Admin, id: wakeq::EventId) -> Result<(), wakeq::AdminError> {
/// if let Some(checkpoint) = admin.checkpoint(wakeq::CanvasId::DEFAULT, id).await? {
///     println!("{} bytes at {}: {}", checkpoint.json.len(), checkpoint.stored_at, checkpoint.json);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The value as JSON text.
    pub json: String,
    /// When it was stored, on the database's clock.
    pub stored_at: Timestamp,
}

/// Why a value can't be a checkpoint. Nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCheckpoint {
    /// It is too large.
    #[error(
        "a checkpoint of {bytes} bytes exceeds 65,536: store what is large elsewhere, and keep where it is"
    )]
    TooLarge {
        /// Its size as JSON.
        bytes: usize,
    },
    /// It is not JSON that can be stored.
    #[error(transparent)]
    Value(#[from] JsonError),
}

impl Checkpoint {
    /// Largest value, in bytes of JSON.
    const BYTES_MAX: usize = 64 * 1024;

    pub(crate) fn new(json: String, stored_at: Timestamp) -> Self {
        Self { json, stored_at }
    }

    /// Checks a value, as JSON text.
    pub(crate) fn check(json: &str) -> Result<(), InvalidCheckpoint> {
        if json.len() > Self::BYTES_MAX {
            return Err(InvalidCheckpoint::TooLarge { bytes: json.len() });
        }
        Ok(check(json)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_json_of_up_to_64_kib() {
        let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        Checkpoint::check(&text(65_536)).unwrap();
        let refused = Checkpoint::check(&text(65_537)).unwrap_err();
        let expected =
            "a checkpoint of 65537 bytes exceeds 65,536: store what is large elsewhere, and keep where it is";
        assert_eq!(refused.to_string(), expected);
        for text in ["", "{", "1 2", r#""\u0000""#] {
            assert!(matches!(Checkpoint::check(text), Err(InvalidCheckpoint::Value(_))), "{text}");
        }
    }
}
