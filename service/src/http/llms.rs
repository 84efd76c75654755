//! `/llms.txt`: what the documents are about, for programs that read them (<https://llmstxt.org>).
//!
//! The list is made from the documents; a test of theirs compares it. Nothing is read here.

use axum::body::Bytes;

/// With links from the root of the repository.
const LIST: &str = include_str!("../../llms.txt");
/// Where the documents are, as text.
const DOCUMENTS: &str = concat!("](", env!("CARGO_PKG_REPOSITORY"), "/raw/main/");

/// The list with links that lead there from anywhere.
pub(super) fn list() -> Bytes {
    LIST.replace("](", DOCUMENTS).into()
}
