//! How many events one statement inserts.

use crate::event::NewEvent;

/// Maximum number of rows in one statement.
pub(super) const PAGE: usize = 1000;
/// Maximum bytes of values in one statement.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Cuts positions into pages of at most [`PAGE`] events and [`PAGE_BYTES`], or one event that is
/// larger.
pub(super) fn pages<'a>(positions: &'a [usize], events: &[NewEvent]) -> Vec<&'a [usize]> {
    let mut pages = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (end, at) in positions.iter().enumerate() {
        let size = events[*at].value.len();
        if end > start && (end - start == PAGE || bytes + size > PAGE_BYTES) {
            pages.push(&positions[start..end]);
            (start, bytes) = (end, 0);
        }
        bytes += size;
    }
    if start < positions.len() {
        pages.push(&positions[start..]);
    }
    pages
}
