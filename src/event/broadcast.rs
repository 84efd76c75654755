//! Broadcasts: what listeners receive of an emitted event, and the wire format.
//!
//! A broadcast is a copy for listeners and carries no duty: the event itself is its row.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    CanvasId, Due, EventId, HandlerAddress, HandlerScope, Link, Metadata, Name, NewEvent, Place, Timestamp,
};

/// Largest value that is broadcast, in bytes: the limit of a whole Pub/Sub message is 10 MB.
const VALUE_MAX_BYTES: usize = 9_000_000;

/// An emitted event as its listeners receive it, after its row was committed. Delivery is best
/// effort: a broadcast may be lost, duplicated, late or out of order.
///
/// ```
/// use wakeq::CanvasId;
/// use wakeq::listeners::Broadcast;
///
/// let body = br#"{"id":"01a1fa2a-7101-7382-922f-e03ca3c19953","canvasID":"00000000-0000-0000-0000-000000000000",
///     "module":"page","name":"view","modifier":"_","value":{"path":"/"},
///     "traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#;
/// let broadcast = Broadcast::parse(body).unwrap();
/// assert_eq!(broadcast.topic(), "00000000-0000-0000-0000-000000000000:page:view");
/// assert_eq!(broadcast.value.as_deref(), Some(r#"{"path":"/"}"#));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// The event's id.
    pub id: EventId,
    /// The handler it is addressed to.
    pub address: HandlerAddress,
    /// Its value as JSON. `None` if it is too large to be broadcast: read it from the event.
    pub value: Option<String>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its object and its link in the object's chain, if it was emitted on an object.
    pub place: Option<Place>,
    /// When it may run, as its emitter asked.
    pub due: Due,
}

/// A message that is not a broadcast. Listeners skip it.
#[derive(Debug, thiserror::Error)]
#[error("a message of {length} bytes is not a broadcast")]
pub struct MalformedBroadcast {
    /// Length of the body in bytes; the body itself is not kept.
    pub length: usize,
}

/// The wire format. Unknown fields are ignored.
#[derive(Serialize, Deserialize)]
struct BroadcastJson<'a> {
    id: Uuid,
    #[serde(rename = "canvasID")]
    canvas: Uuid,
    module: &'a str,
    name: &'a str,
    modifier: &'a str,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(rename = "valueOmitted", default, skip_serializing_if = "std::ops::Not::not")]
    value_omitted: bool,
    #[serde(flatten)]
    metadata: Cow<'a, Metadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<&'a str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prev: Option<i64>,
    #[serde(rename = "delayUntil", default, skip_serializing_if = "Option::is_none")]
    delay_until: Option<Timestamp>,
    #[serde(rename = "delayS", default, skip_serializing_if = "Option::is_none")]
    delay_s: Option<f64>,
}

impl Broadcast {
    /// The broadcast of an event that is committed, with its link.
    pub(crate) fn of(event: &NewEvent, link: Option<Link>) -> Self {
        Self {
            id: event.id,
            address: event.address.clone(),
            value: Some(event.value.clone()),
            metadata: event.metadata.clone(),
            place: event.place(link),
            due: event.due,
        }
    }

    /// The topic that patterns are matched against: `canvas:module:name`.
    pub fn topic(&self) -> String {
        let HandlerScope { canvas, module, name } = &self.address.scope;
        format!("{canvas}:{module}:{name}")
    }

    /// The attributes of the Pub/Sub message, for subscription filters.
    pub fn attributes(&self) -> [(&'static str, String); 4] {
        let HandlerScope { canvas, module, name } = &self.address.scope;
        [
            ("canvas", canvas.to_string()),
            ("module", module.to_string()),
            ("name", name.to_string()),
            ("modifier", self.address.modifier.to_string()),
        ]
    }

    /// The body of the message: one line of JSON. A value that is too large for Pub/Sub is left
    /// out, which `"valueOmitted": true` indicates.
    pub fn body(&self) -> String {
        let small = self.value.as_deref().filter(|value| value.len() <= VALUE_MAX_BYTES);
        self.body_with(small)
    }

    /// The same, without the value if the body is longer than this with it.
    pub(crate) fn body_within(&self, bytes_max: usize) -> String {
        let body = self.body_with(self.value.as_deref().filter(|value| value.len() < bytes_max));
        if body.len() <= bytes_max { body } else { self.body_with(None) }
    }

    fn body_with(&self, value: Option<&str>) -> String {
        let HandlerAddress { scope: HandlerScope { canvas, module, name }, modifier } = &self.address;
        // The value was validated when the event was emitted.
        let value = value.and_then(|value| serde_json::from_str(value).ok());
        let wire = BroadcastJson {
            id: self.id.0,
            canvas: canvas.0,
            module: module.as_str(),
            name: name.as_str(),
            modifier: modifier.as_str(),
            value,
            value_omitted: value.is_none(),
            metadata: Cow::Borrowed(&self.metadata),
            object: self.place.as_ref().map(|place| place.object.as_str()),
            link: self.place.as_ref().map(|place| place.link.id),
            prev: self.place.as_ref().map(|place| place.link.prev),
            delay_until: match self.due {
                Due::At(moment) => Some(moment),
                Due::Now | Due::After(_) => None,
            },
            delay_s: match self.due {
                Due::After(delay) => Some(delay.as_secs_f64()),
                Due::Now | Due::At(_) => None,
            },
        };
        // Line breaks are only whitespace in JSON: those inside strings are escaped.
        serde_json::to_string(&wire).unwrap_or_default().replace(['\n', '\r'], " ")
    }

    /// Parses the body of a message.
    pub fn parse(body: &[u8]) -> Result<Self, MalformedBroadcast> {
        Self::read(body).ok_or(MalformedBroadcast { length: body.len() })
    }

    fn read(body: &[u8]) -> Option<Self> {
        let wire: BroadcastJson<'_> = serde_json::from_slice(body).ok()?;
        let name = |text: &str| text.parse::<Name>().ok();
        let scope = HandlerScope {
            canvas: CanvasId(wire.canvas),
            module: name(wire.module)?,
            name: name(wire.name)?,
        };
        let place = match (wire.object, wire.link, wire.prev) {
            (Some(object), Some(id), Some(prev)) => {
                Some(Place { object: object.parse().ok()?, link: Link { id, prev } })
            }
            (None, None, None) => None,
            _ => return None,
        };
        let due = match (wire.delay_until, wire.delay_s) {
            (Some(moment), _) => Due::At(moment),
            (None, Some(delay_s)) => Due::After(Duration::try_from_secs_f64(delay_s).ok()?),
            (None, None) => Due::Now,
        };
        Some(Self {
            id: EventId(wire.id),
            address: HandlerAddress { scope, modifier: name(wire.modifier)? },
            // A JSON `null` is a value, but deserializes like a missing one.
            value: (!wire.value_omitted).then(|| wire.value.map_or("null", RawValue::get).to_owned()),
            metadata: wire.metadata.into_owned(),
            place,
            due,
        })
    }

    /// Approximate size in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, String::len) + 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn broadcast(value: &str) -> Broadcast {
        let scope = HandlerScope {
            canvas: CanvasId(Uuid::from_u128(7)),
            module: "page".parse().unwrap(),
            name: "view".parse().unwrap(),
        };
        Broadcast {
            id: EventId(Uuid::from_u128(1)),
            address: HandlerAddress { scope, modifier: Name::no_modifier() },
            value: Some(value.to_owned()),
            metadata: Metadata::default().traced(|_| TRACE.parse().unwrap()),
            place: None,
            due: Due::Now,
        }
    }

    // Shows: DRV-14
    #[test]
    fn topic_and_body_are_as_agreed() {
        let plain = broadcast("{\"path\":\r\n\"/\"}");
        assert_eq!(plain.topic(), "00000000-0000-0000-0000-000000000007:page:view");
        assert_eq!(
            plain.body(),
            r#"{"id":"00000000-0000-0000-0000-000000000001","canvasID":"00000000-0000-0000-0000-000000000007","module":"page","name":"view","modifier":"_","value":{"path":  "/"},"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#
        );
        let place = Place { object: "work:1".parse().unwrap(), link: Link { id: 17, prev: 12 } };
        let due = Due::At("2030-01-31T08:00:00Z".parse().unwrap());
        let on_object = Broadcast { place: Some(place), due, ..broadcast("null") }.body();
        let end = r#","object":"work:1","link":17,"prev":12,"delayUntil":"2030-01-31T08:00:00Z"}"#;
        assert!(on_object.ends_with(end) && on_object.contains(r#""value":null"#), "{on_object}");
        assert_eq!(
            plain.attributes().map(|(name, value)| format!("{name}={value}")),
            ["canvas=00000000-0000-0000-0000-000000000007", "module=page", "name=view", "modifier=_"]
        );
    }

    #[test]
    fn broadcasts_round_trip() {
        let place = Place { object: "work:1".parse().unwrap(), link: Link { id: 17, prev: 12 } };
        for due in [
            Due::Now,
            Due::After(Duration::from_millis(1500)),
            Due::At("2030-01-31T08:00:00.123Z".parse().unwrap()),
        ] {
            for value in ["null", "\"a\\nb\"", "[1, 2]", "17"] {
                let sent = Broadcast { place: Some(place.clone()), due, ..broadcast(value) };
                assert_eq!(Broadcast::parse(sent.body().as_bytes()).unwrap(), sent);
            }
        }
    }

    #[test]
    fn a_value_that_is_too_large_is_left_out_and_marked() {
        let large = format!("\"{}\"", "x".repeat(VALUE_MAX_BYTES));
        let body = broadcast(&large).body();
        assert!(body.len() < 1000 && body.contains(r#""valueOmitted":true"#), "{body}");
        assert_eq!(Broadcast::parse(body.as_bytes()).unwrap().value, None);
        assert!(!broadcast("1").body().contains("valueOmitted"));
    }

    #[test]
    fn rejects_malformed_broadcasts() {
        let good = broadcast("1").body();
        for body in [
            "",
            "{}",
            "[]",
            &good.replace("page", "pa ge"),
            &good.replace("\"_\"", "\"\""),
            &good.replace("}", ",\"link\":1}"),
            &good.replace("}", ",\"delayS\":-1}"),
        ] {
            assert!(Broadcast::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
