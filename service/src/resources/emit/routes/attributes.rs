//! The attributes of a CloudEvent: their names, their limits, and what each of them means to the
//! queue.

use std::fmt::Write;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::resources::emit::wire::json;
use crate::resources::emit::wire::refusal::{Fault, named};
use wakeq::EventId;

/// The attributes of the specification, all of them strings.
const CORE: [&str; 8] =
    ["specversion", "id", "source", "type", "subject", "time", "dataschema", "datacontenttype"];
/// Maximum number of attributes of one CloudEvent.
const COUNT_MAX: usize = 64;
/// Maximum length of a name.
const NAME_MAX: usize = 64;
/// Maximum length of a value, in bytes.
const VALUE_MAX: usize = 4096;

/// Attributes in the order of arrival, as their canonical strings. Null attributes are left out.
#[derive(Default)]
pub(super) struct Attributes(Vec<(String, String)>);

/// The handler that `type` names.
pub(super) struct NamedHandler<'a> {
    pub(super) module: &'a str,
    pub(super) name: &'a str,
    pub(super) modifier: &'a str,
}

impl Attributes {
    /// From headers whose `ce-` prefix has been removed, with their values as sent.
    pub(super) fn from_headers<'a>(
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, Fault> {
        let mut attributes = Self::default();
        for (name, value) in headers {
            if matches!(name, "data" | "datacontenttype") {
                let expected = "left out: in binary mode the body and `content-type` carry it";
                return Err(Fault::shape(format!("the header `ce-{name}`"), expected));
            }
            if attributes.optional(name).is_some() {
                return Err(Fault::Repeated(format!("the header ce-{}", named(name))));
            }
            let value = decoded(value).ok_or_else(|| {
                Fault::shape(
                    format!("the header ce-{}", named(name)),
                    "percent-encoded UTF-8 in visible ASCII",
                )
            })?;
            attributes.set(name, value)?;
        }
        Ok(attributes)
    }

    /// Adds a field of a JSON object. Null means that the attribute is absent.
    pub(super) fn add_json(&mut self, name: &str, value: &RawValue) -> Result<(), Fault> {
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'n') => Ok(()),
            Some(b'"') => self.set(name, json::string(value, named(name))?.into_owned()),
            _ if CORE.contains(&name) => Err(Fault::shape(named(name), "a string")),
            Some(b't' | b'f') => self.set(name, text.to_owned()),
            _ if text.parse::<i32>().is_ok() => self.set(name, text.to_owned()),
            _ => Err(Fault::shape(named(name), "a string, a boolean or an integer of 32 bits")),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: String) -> Result<(), Fault> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(plain) {
            let expected = "renamed: an attribute's name has 1 to 64 of the characters a-z 0-9";
            return Err(Fault::shape(named(name), expected));
        }
        if value.len() > VALUE_MAX || value.chars().any(is_forbidden) {
            return Err(Fault::shape(named(name), "at most 4096 bytes without control characters"));
        }
        if self.0.len() == COUNT_MAX {
            return Err(Fault::TooManyFields(COUNT_MAX));
        }
        self.0.push((name.to_owned(), value));
        Ok(())
    }

    pub(super) fn optional(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn required(&self, name: &'static str) -> Result<&str, Fault> {
        self.optional(name).ok_or(Fault::Missing(name))
    }

    /// Checks the attributes of the specification.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.required("specversion")? != "1.0" {
            return Err(Fault::shape("`specversion`", "1.0"));
        }
        for name in ["id", "source", "type"] {
            self.required(name)?;
        }
        for name in CORE {
            if self.optional(name).is_some_and(str::is_empty) {
                return Err(Fault::shape(named(name), "non-empty"));
            }
        }
        for name in ["source", "dataschema"] {
            if self.optional(name).is_some_and(|value| !is_uri_reference(value)) {
                return Err(Fault::shape(named(name), "a URI as in RFC 3986"));
            }
        }
        self.optional("time").map_or(Ok(()), |time| json::timestamp(time, "`time`").map(drop))
    }

    /// The handler from `type`: `name`, `MODULE/name` or `MODULE/name/modifier`; the modifier may
    /// also be an attribute of its own.
    pub(super) fn handler(&self) -> Result<NamedHandler<'_>, Fault> {
        let parts: Vec<&str> = self.required("type")?.split('/').collect();
        let apart = self.optional("modifier");
        let (module, name, modifier) = match (parts.as_slice(), apart) {
            ([name], apart) => ("WORKER", *name, apart),
            ([module, name], apart) => (*module, *name, apart),
            ([module, name, modifier], None) => (*module, *name, Some(*modifier)),
            ([_, _, _], Some(_)) => return Err(Fault::Both("`modifier`", "the third part of `type`")),
            _ => return Err(Fault::shape("`type`", "name, MODULE/name or MODULE/name/modifier")),
        };
        Ok(NamedHandler { module, name, modifier: modifier.unwrap_or("_") })
    }

    /// The chosen id of the event, equal for repeats of a CloudEvent and different for all others:
    /// the length of the source keeps source and id apart.
    pub(super) fn event_id(&self) -> Result<EventId, Fault> {
        let (source, id) = (self.required("source")?, self.required("id")?);
        let name = format!("{}/{source}/{id}", source.len());
        Ok(EventId(Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes())))
    }

    /// A JSON object with all attributes, and with `member`, whose value is JSON text.
    pub(super) fn object_with(&self, member: Option<(&str, String)>) -> String {
        let attributes = self
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), serde_json::Value::from(value.as_str()).to_string()));
        let mut object = String::from("{");
        for (name, value) in attributes.chain(member) {
            let comma = if object.len() > 1 { "," } else { "" };
            // Writing to a string can't fail.
            let _ = write!(object, "{comma}\"{name}\":{value}");
        }
        object.push('}');
        object
    }
}

/// Control characters and Unicode's noncharacters.
fn is_forbidden(character: char) -> bool {
    let code = u32::from(character);
    character.is_control() || (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// Whether the text only has characters of a URI reference, and two digits after each `%`.
fn is_uri_reference(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => digits(at),
        b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
        byte => byte.is_ascii_graphic(),
    })
}

/// Decodes a header's value according to the HTTP binding of CloudEvents: removes quotes, then
/// percent-decodes once.
fn decoded(value: &[u8]) -> Option<String> {
    if !value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return None;
    }
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    let value = match quoted {
        Some(quoted) => unquoted(quoted)?,
        None => value.to_owned(),
    };
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_slice();
    while let Some((byte, after)) = rest.split_first() {
        if *byte == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok().filter(|pair| !pair.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The content of a quoted string, with escapes removed.
fn unquoted(quoted: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(quoted.len());
    let mut rest = quoted.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => bytes.push(*rest.next()?),
            b'"' => return None,
            byte => bytes.push(*byte),
        }
    }
    Some(bytes)
}
