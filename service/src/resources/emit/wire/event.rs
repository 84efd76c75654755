//! The JSON of an event to be emitted: how it is described, written and read.
//!
//! Its value is kept verbatim; all other fields are checked here or by the event itself.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::json;
use super::options::OptionsJson;
use super::refusal::{Fault, named};
use super::unique::UniqueJson;
use crate::resources::log::wire::{Logged, StreamName};
use wakeq::{Event, EventId};

/// All fields, as an answer to an unknown one lists them.
const FIELDS: &str = "module, name, modifier, value, id, delay_until, delay_s, object, only_queues, logged, \
                      unique, options and batch";

/// An event to be emitted.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent {
    /// The handler's module. Default `WORKER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "WORKER")]
    pub(crate) module: Option<String>,
    /// The handler's name.
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "send-email")]
    pub(crate) name: String,
    /// The handler's modifier. Default `_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_.-]{1,128}$", example = "_")]
    pub(crate) modifier: Option<String>,
    /// The value that the handler receives, stored verbatim. Default null. Nested at most 64 levels
    /// deep, and without NUL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    pub(crate) value: Option<Box<RawValue>>,
    /// An id that you choose, unique on the canvas: emitting it again within 7 days adds nothing.
    /// The event's own id is in the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Uuid>,
    /// Time before which the event does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_until: Option<DateTime<Utc>>,
    /// Delay before the event may run, in seconds. Excludes `delay_until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3_162_240_000.0)]
    pub(crate) delay_s: Option<f64>,
    /// The object of the event: it runs after all earlier events on the object for the same
    /// handler. A part of an object, written after a `/`, belongs to the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^[A-Za-z0-9_.:@=+~-]{1,200}(/[A-Za-z0-9_.:@=+~-]{1,200})*$",
        max_length = 4096,
        example = "work:1"
    )]
    pub(crate) object: Option<String>,
    /// Only for the registered queues that match; the handler does not receive it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) only_queues: bool,
    /// Whether to also append the event to the log in the same transaction: `true`, or a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logged: Option<Logged>,
    /// A unique key: of the events for the handler, at most one has it at a time. Excludes `id`,
    /// `object`, `only_queues` and `logged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unique: Option<UniqueJson>,
    /// What the event asks for in place of its handler's policy. Its copies in queues do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<OptionsJson>,
    /// The batch that the event is a member of, which has to be open. Excludes `only_queues` and
    /// `unique`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[!-~]{1,255}$", example = "import:42")]
    pub(crate) batch: Option<String>,
}

impl NewEvent {
    /// Reads an event. A field that is null counts as missing, except for the value.
    pub(crate) fn read(text: &RawValue) -> Result<Self, Fault> {
        let (mut new, mut name) = (Self::default(), None);
        for (field, raw) in json::fields(text, "the event")? {
            let given = (!json::is_null(raw)).then_some(raw);
            let string = |what| given.map(|raw| json::string(raw, what)).transpose();
            match field.as_str() {
                "module" => new.module = string("`module`")?.map(Into::into),
                "name" => name = string("`name`")?.map(Into::into),
                "modifier" => new.modifier = string("`modifier`")?.map(Into::into),
                "value" => new.value = Some(raw.to_owned()),
                "id" => new.id = string("`id`")?.map(|text| uuid(&text)).transpose()?,
                "delay_until" => {
                    let moment = string("`delay_until`")?.map(|text| json::timestamp(&text, "`delay_until`"));
                    new.delay_until = moment.transpose()?;
                }
                "delay_s" => {
                    new.delay_s = given.map(|raw| json::seconds(raw.get(), "`delay_s`")).transpose()?;
                }
                "object" => new.object = string("`object`")?.map(Into::into),
                "only_queues" => new.only_queues = given.map_or(Ok(false), only_queues)?,
                "logged" => new.logged = given.map(logged).transpose()?,
                "unique" => new.unique = given.map(UniqueJson::read).transpose()?,
                "batch" => new.batch = string("`batch`")?.map(Into::into),
                "options" => new.options = given.map(OptionsJson::read).transpose()?,
                _ => return Err(Fault::UnknownField(named(&field), FIELDS)),
            }
        }
        Ok(Self { name: name.ok_or(Fault::Missing("`name`"))?, ..new })
    }

    /// The event that it describes.
    pub(crate) fn event(self) -> Result<Event, Fault> {
        let value = self.value.map_or_else(|| "null".into(), Box::<str>::from);
        let mut event = Event::from_json(&self.name, value)?;
        if let Some(module) = self.module {
            event = event.module(&module)?;
        }
        if let Some(modifier) = self.modifier {
            event = event.modifier(&modifier)?;
        }
        if let Some(id) = self.id {
            event = event.id(EventId(id));
        }
        if let Some(object) = self.object {
            event = event.on(&object)?;
        }
        if self.only_queues {
            event = event.only_to_queues();
        }
        if let Some(logged) = self.logged {
            event = logged.of(event)?;
        }
        if let Some(unique) = self.unique {
            event = event.unique(unique.unique()?)?;
        }
        if let Some(batch) = self.batch {
            event = event.batch(&batch)?;
        }
        if let Some(options) = self.options {
            event = options.of(event)?;
        }
        match (self.delay_until, self.delay_s) {
            (Some(_), Some(_)) => Err(Fault::Both("`delay_until`", "`delay_s`")),
            (Some(moment), None) => Ok(event.at(moment)?),
            (None, Some(delay)) => Ok(event.after(json::duration(delay)?)?),
            (None, None) => Ok(event),
        }
    }
}

fn only_queues(raw: &RawValue) -> Result<bool, Fault> {
    match raw.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::shape("`only_queues`", "true or false")),
    }
}

/// `true`, `false`, or a stream.
fn logged(raw: &RawValue) -> Result<Logged, Fault> {
    match raw.get() {
        "true" => return Ok(Logged::ByAddress(true)),
        "false" => return Ok(Logged::ByAddress(false)),
        _ => {}
    }
    let (mut category, mut stream) = (None, None);
    for (field, raw) in json::fields(raw, "`logged`")? {
        let known = match field.as_str() {
            "category" => &mut category,
            "stream" => &mut stream,
            _ => {
                return Err(Fault::shape("`logged`", "true, false, or an object with category and stream"));
            }
        };
        *known = Some(json::string(raw, "`logged`")?.into_owned());
    }
    match (category, stream) {
        (Some(category), Some(stream)) => Ok(Logged::In(StreamName { category, stream })),
        _ => Err(Fault::shape("`logged`", "true, false, or an object with category and stream")),
    }
}

/// A uuid with hyphens, the form that all answers use.
fn uuid(text: &str) -> Result<Uuid, Fault> {
    match text.parse() {
        Ok(id) if text.len() == 36 => Ok(id),
        Ok(_) | Err(_) => Err(Fault::shape("`id`", "a uuid with hyphens")),
    }
}
