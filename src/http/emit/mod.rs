//! Emitting over HTTP: what a request says, and its answer.
#![cfg_attr(not(test), expect(dead_code, reason = "the routes are not here yet"))]

mod attributes;
mod cloudevents;
mod json;
mod media;
mod plain;
mod refusal;
mod request;
#[cfg(test)]
mod tests;
