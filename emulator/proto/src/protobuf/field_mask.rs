//! `google.protobuf.FieldMask`: a list of paths on the wire, one string with commas in JSON.
//!
//! It knows no message's fields; whoever applies a mask checks its paths.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Which fields of a resource an update changes.
///
/// ```
/// use wakeq_emulator_proto::protobuf::FieldMask;
///
/// let mask: FieldMask = serde_json::from_str(r#""ackDeadlineSeconds,labels""#).unwrap();
/// assert_eq!(mask.paths, ["ack_deadline_seconds", "labels"]);
/// ```
#[derive(Clone, Eq, Hash, PartialEq, prost::Message)]
pub struct FieldMask {
    /// The fields' names as in the proto: `ack_deadline_seconds`, `push_config.push_endpoint`.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

impl Serialize for FieldMask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let paths: Vec<String> = self.paths.iter().map(|path| camel(path)).collect();
        serializer.serialize_str(&paths.join(","))
    }
}

impl<'de> Deserialize<'de> for FieldMask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Paths)
    }
}

struct Paths;

impl Visitor<'_> for Paths {
    type Value = FieldMask;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("field names separated by commas")
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldMask, E> {
        let paths = text.split(',').map(str::trim).filter(|path| !path.is_empty());
        Ok(FieldMask { paths: paths.map(snake).collect() })
    }
}

fn camel(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut upper = false;
    for character in path.chars() {
        match character {
            '_' => upper = true,
            _ if upper => {
                text.extend(character.to_uppercase());
                upper = false;
            }
            _ => text.push(character),
        }
    }
    text
}

/// Names that are written with underscores already stay as they are.
fn snake(path: &str) -> String {
    let mut text = String::with_capacity(path.len() + 4);
    for character in path.chars() {
        if character.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}
