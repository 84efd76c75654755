//! Tables of requests to emit, valid and refused, and what they are parsed to. This module has
//! their shared helpers.

mod changes;
mod cloud_events;
mod options;
mod plain_json;
mod unique;

use std::time::Duration;

use super::cloudevents::Keep;
use super::emission::{Emission, Headers};
use super::request::{Incoming, read};
use crate::resources::emit::wire::refusal::{Fault, Refusal};
use wakeq::events::Due;
use wakeq::{CanvasId, Event, EventError, EventId};

const CANVAS: CanvasId = CanvasId(uuid::Uuid::from_u128(7));
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const JSON: (&str, &str) = ("content-type", "application/json");
const STRUCTURED: (&str, &str) = ("content-type", "application/cloudevents+json; charset=UTF-8");
const BATCHED: (&str, &str) = ("content-type", "application/cloudevents-batch+json");
/// The required attributes as headers.
const BINARY: [(&str, &str); 4] =
    [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/shop"), ("ce-type", "greet")];

fn send(batch: bool, keep: Keep, headers: &[(&str, &str)], body: &[u8]) -> Result<Emission, Refusal> {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    read(&Incoming { canvas: CANVAS, batch, keep, headers: Headers(&headers), body })
}

fn one(headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Event, Refusal> {
    one_kept(Keep::Data, headers, body)
}

fn one_kept(keep: Keep, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Event, Refusal> {
    match send(false, keep, headers, body.as_ref())? {
        Emission::One(event) => Ok(*event),
        Emission::Batch(events) => panic!("a batch of {}", events.len()),
        Emission::On(change) => panic!("a change: {change:?}"),
    }
}

fn many(headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Vec<Event>, Refusal> {
    match send(true, Keep::Data, headers, body.as_ref())? {
        Emission::Batch(events) => Ok(events),
        Emission::One(event) => panic!("one event: {event:?}"),
        Emission::On(change) => panic!("a change: {change:?}"),
    }
}

fn plain(body: &str) -> Event {
    one(&[JSON], body).unwrap()
}

fn address(event: &Event) -> String {
    event.address(CanvasId::DEFAULT).to_string()
}

#[track_caller]
fn check_refused(refused: Result<impl std::fmt::Debug, Refusal>, part: &str) {
    let words = refused.unwrap_err().to_string();
    assert!(words.contains(part), "{words:?} lacks {part:?}");
    assert!(!words.contains("secret"), "{words:?} repeats what was sent");
}

/// A CloudEvent in JSON format with the required members and these.
fn cloud_event(members: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"1","source":"/shop","type":"greet"{members}}}"#)
}

/// Binary mode with the required headers and these.
fn binary(more: &[(&str, &str)], body: impl AsRef<[u8]>) -> Result<Event, Refusal> {
    one(&[BINARY.as_slice(), more].concat(), body)
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}
