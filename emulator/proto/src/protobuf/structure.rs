//! `google.protobuf.Struct`: any JSON object.
//!
//! JSON nests 128 deep at most, and the wire 100: who reads it has seen to that.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};
use value::Kind;

/// A JSON object.
///
/// ```
/// use wakeq_emulator_proto::protobuf::Struct;
///
/// let object: Struct = serde_json::from_str(r#"{"model":"x","n":[1.5,null]}"#).unwrap();
/// assert_eq!(serde_json::to_string(&object).unwrap(), r#"{"model":"x","n":[1.5,null]}"#);
/// ```
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// Its fields.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// A JSON value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// What it is. A message may leave it out; JSON has no word for that.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

/// A JSON array.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// Its values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// What a [`Value`] may be.
pub mod value {
    use super::{ListValue, Struct};

    /// A JSON value's kind.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// `null`; the number is 0.
        #[prost(int32, tag = "1")]
        NullValue(i32),
        /// A number, which JSON can write only if it is finite.
        #[prost(double, tag = "2")]
        NumberValue(f64),
        /// A string.
        #[prost(string, tag = "3")]
        StringValue(String),
        /// `true` or `false`.
        #[prost(bool, tag = "4")]
        BoolValue(bool),
        /// An object.
        #[prost(message, tag = "5")]
        StructValue(Struct),
        /// An array.
        #[prost(message, tag = "6")]
        ListValue(ListValue),
    }
}

impl Serialize for Struct {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Struct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { fields: BTreeMap::deserialize(deserializer)? })
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            None => Err(S::Error::custom("a value in a struct has no kind")),
            Some(Kind::NullValue(_)) => serializer.serialize_unit(),
            Some(Kind::NumberValue(number)) if !number.is_finite() => Err(S::Error::custom(format_args!(
                "a number in a struct is {number}, which JSON cannot represent"
            ))),
            Some(Kind::NumberValue(number)) => serializer.serialize_f64(*number),
            Some(Kind::StringValue(text)) => serializer.serialize_str(text),
            Some(Kind::BoolValue(yes)) => serializer.serialize_bool(*yes),
            Some(Kind::StructValue(object)) => object.serialize(serializer),
            Some(Kind::ListValue(list)) => list.values.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { kind: Some(deserializer.deserialize_any(AnyKind)?) })
    }
}

struct AnyKind;

impl<'de> Visitor<'de> for AnyKind {
    type Value = Kind;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::NullValue(0))
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Kind, E> {
        Ok(Kind::BoolValue(yes))
    }

    // Every number is a double: whole ones beyond 2^53 are rounded, as the type has it.
    fn visit_i64<E>(self, number: i64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Kind, E> {
        Ok(Kind::NumberValue(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::StringValue(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Kind, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = array.next_element()? {
            values.push(value);
        }
        Ok(Kind::ListValue(ListValue { values }))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Kind, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = object.next_entry()? {
            fields.insert(name, value);
        }
        Ok(Kind::StructValue(Struct { fields }))
    }
}
