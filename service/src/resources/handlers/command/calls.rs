//! The client's calls about a handler.

use crate::cli::arguments::HandlerName;
use crate::cli::client::{Client, Request};
use crate::resources::handlers::wire::Handler;

impl Client {
    /// One handler, which may have nothing.
    pub(crate) async fn handler(&self, handler: &HandlerName) -> anyhow::Result<Handler> {
        self.call(at(Request::get, handler, &[])).await
    }
}

/// The request about a handler.
pub(super) fn at(verb: fn(&[&str]) -> Request, handler: &HandlerName, part: &[&str]) -> Request {
    verb(&[&["handlers", handler.module.as_str(), handler.name.as_str()][..], part].concat())
}
