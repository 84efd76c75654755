//! The limits of a call.

/// Maximum number of events, and of streams, in one call that appends.
pub const APPEND_MAX: usize = 1_000;
/// Maximum number of events per page.
pub const READ_MAX: usize = 10_000;
/// Maximum bytes of payloads and metadata per call.
pub(super) const CALL_BYTES_MAX: usize = 16 * 1024 * 1024;
