//! CloudEvents 1.0 in JSON format, singly and in batches, and in HTTP's binary mode.
//!
//! All of them are parsed to one type here, which becomes an event: `type` names the handler,
//! `source` and `id` make the event's id, and the value is the data or the whole CloudEvent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::attributes::Attributes;
use super::emission::{Draft, EVENTS_MAX, Headers};
use super::media::MediaType;
use crate::resources::emit::wire::json;
use crate::resources::emit::wire::refusal::{Fault, Refusal};
use wakeq::Event;

const NEITHER_JSON_NOR_TEXT: Fault = Fault::MediaType(
    "the data is neither JSON nor text, so it can't be the value: keep the whole CloudEvent with ?value=envelope",
);

/// Which part of a CloudEvent becomes the value of the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Keep {
    /// The data: JSON verbatim, text as a string.
    #[default]
    Data,
    /// The whole CloudEvent in JSON format.
    Envelope,
}

/// A CloudEvent, in whatever mode it arrived.
struct ReceivedCloudEvent<'a> {
    attributes: Attributes,
    data: Data<'a>,
    /// Its full text, if it arrived in JSON format.
    text: Option<&'a str>,
}

/// Where the data is.
enum Data<'a> {
    Absent,
    /// The member `data`: JSON itself, or a string that holds text.
    Member(&'a RawValue),
    Bytes(Vec<u8>),
}

/// One CloudEvent in JSON format.
pub(super) fn structured(text: &str, keep: Keep, draft: &Draft) -> Result<Event, Refusal> {
    Ok(ReceivedCloudEvent::from_json(json::value(text)?)?.event(keep, draft)?)
}

/// CloudEvents in JSON batch format; the batch may be empty.
pub(super) fn batch(text: &str, keep: Keep, draft: &Draft) -> Result<Vec<Event>, Refusal> {
    let events = json::elements(json::value(text)?, "the body")?;
    if events.len() > EVENTS_MAX {
        return Err(Fault::Count { count: events.len(), least: 0, most: EVENTS_MAX }.into());
    }
    let read = |object| ReceivedCloudEvent::from_json(object)?.event(keep, draft);
    let numbered = events.into_iter().enumerate();
    numbered.map(|(at, object)| read(object).map_err(|fault| Refusal::from(fault).of_event(at))).collect()
}

/// A CloudEvent with its attributes in headers and its data as the body.
pub(super) fn binary(
    headers: Headers<'_>,
    media: Option<&MediaType>,
    body: &[u8],
    keep: Keep,
    draft: &Draft,
) -> Result<Event, Refusal> {
    let mut attributes = Attributes::from_headers(headers.attributes())?;
    if let Some(content_type) = headers.one("content-type")? {
        attributes.set("datacontenttype", content_type.to_owned())?;
    }
    let absent = body.is_empty() && !media.is_some_and(MediaType::is_text);
    let data = if absent { Data::Absent } else { Data::Bytes(body.to_owned()) };
    Ok(ReceivedCloudEvent { attributes, data, text: None }.event(keep, draft)?)
}

impl<'a> ReceivedCloudEvent<'a> {
    fn from_json(object: &'a RawValue) -> Result<Self, Fault> {
        let (mut attributes, mut data, mut bytes) = (Attributes::default(), None, None);
        for (name, value) in json::fields(object, "a CloudEvent")? {
            match name.as_str() {
                "data" => data = Some(value),
                "data_base64" if json::is_null(value) => {}
                "data_base64" => {
                    let text = json::string(value, "`data_base64`")?;
                    let decoded = STANDARD.decode(text.as_bytes());
                    bytes =
                        Some(decoded.map_err(|_| Fault::shape("`data_base64`", "base64 with its padding"))?);
                }
                _ => attributes.add_json(&name, value)?,
            }
        }
        let data = match (data, bytes) {
            (Some(data), Some(_)) if !json::is_null(data) => {
                return Err(Fault::Both("`data`", "`data_base64`"));
            }
            (_, Some(bytes)) => Data::Bytes(bytes),
            (Some(data), None) => Data::Member(data),
            (None, None) => Data::Absent,
        };
        Ok(Self { attributes, data, text: Some(object.get()) })
    }

    fn event(&self, keep: Keep, draft: &Draft) -> Result<Event, Fault> {
        self.attributes.check()?;
        let media = self.attributes.optional("datacontenttype").map(MediaType::parse).transpose()?;
        let value = match keep {
            Keep::Data => self.value(media.as_ref())?,
            Keep::Envelope => self.envelope(media.as_ref())?,
        };
        let target = self.attributes.handler()?;
        let trace = self.attributes.optional("traceparent").and_then(|text| text.parse().ok());
        let event = Event::from_json(target.name, value)?.module(target.module)?.modifier(target.modifier)?;
        let mut event = draft.complete(event.id(self.attributes.event_id()?).in_trace(trace));
        if let Some(object) = self.attributes.optional("object") {
            event = event.on(object)?;
        }
        let event = self.asking(event)?;
        match (self.attributes.optional("delayuntil"), self.attributes.optional("delayseconds")) {
            (Some(_), Some(_)) => Err(Fault::Both("`delayuntil`", "`delayseconds`")),
            (Some(moment), None) => Ok(event.at(json::timestamp(moment, "`delayuntil`")?)?),
            (None, Some(delay)) => Ok(event.after(json::duration(json::seconds(delay, "`delayseconds`")?)?)?),
            (None, None) => Ok(event),
        }
    }

    /// The event with the options that the attributes ask for.
    fn asking(&self, mut event: Event) -> Result<Event, Fault> {
        if let Some(moment) = self.attributes.optional("expirytime") {
            event = event.not_after(json::timestamp(moment, "`expirytime`")?)?;
        }
        for key in self.attributes.optional("limits").into_iter().flat_map(|keys| keys.split(',')) {
            event = event.limit(key.trim())?;
        }
        match self.attributes.optional("urgent") {
            Some("true") => Ok(event.urgent()),
            Some("false") | None => Ok(event),
            Some(_) => Err(Fault::shape("`urgent`", "true or false")),
        }
    }

    /// The data as JSON text.
    fn value(&self, media: Option<&MediaType>) -> Result<String, Fault> {
        match &self.data {
            Data::Absent => Ok("null".to_owned()),
            Data::Member(member) => match media {
                Some(media) if media.is_text() => {
                    json::string(member, "`data` of a text type").map(|_| member.get().to_owned())
                }
                Some(media) if !media.is_json() => Err(NEITHER_JSON_NOR_TEXT),
                Some(_) | None => Ok(member.get().to_owned()),
            },
            Data::Bytes(bytes) => json_of_bytes(bytes, media)?.ok_or(NEITHER_JSON_NOR_TEXT),
        }
    }

    /// The whole CloudEvent in JSON format: verbatim if it arrived so, otherwise composed.
    fn envelope(&self, media: Option<&MediaType>) -> Result<String, Fault> {
        if let Some(text) = self.text {
            return Ok(text.to_owned());
        }
        let data = match &self.data {
            Data::Absent => None,
            Data::Member(member) => Some(("data", member.get().to_owned())),
            Data::Bytes(bytes) => Some(match json_of_bytes(bytes, media)? {
                Some(text) => ("data", text),
                None => ("data_base64", format!("\"{}\"", STANDARD.encode(bytes))),
            }),
        };
        Ok(self.attributes.object_with(data))
    }
}

/// Bytes as JSON text, if they are JSON or text. Without a content type they have to be JSON.
fn json_of_bytes(bytes: &[u8], media: Option<&MediaType>) -> Result<Option<String>, Fault> {
    if let Some(media) = media.filter(|media| media.is_json() || media.is_text()) {
        media.check_charset()?;
    }
    let text = || std::str::from_utf8(bytes).map_err(|_| Fault::shape("the data", "UTF-8"));
    match media {
        Some(media) if media.is_text() => Ok(Some(serde_json::Value::from(text()?).to_string())),
        Some(media) if !media.is_json() => Ok(None),
        Some(_) | None => Ok(Some(json::value(json::text(bytes)?)?.get().to_owned())),
    }
}
