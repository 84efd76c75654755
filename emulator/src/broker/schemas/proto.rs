//! Schemas of Protocol Buffers, proto2 and proto3: what a definition says, which messages fit it,
//! and which definitions may follow each other.

use prost_reflect::prost_types::DescriptorProto;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage, Value,
};

/// The name of a definition's file, which nobody sees.
const FILE: &str = "schema.proto";

/// The one message type of a definition.
#[derive(Debug)]
pub(super) struct ProtoSchema {
    message: MessageDescriptor,
}

impl ProtoSchema {
    /// Reads a definition, or says why it is not a schema.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let file = protox_parse::parse(FILE, text).map_err(|error| error.to_string())?;
        if let Some(import) = file.dependency.first() {
            return Err(format!("import statements are not supported, and it imports {import}"));
        }
        let package = if file.package().is_empty() { String::new() } else { format!(".{}", file.package()) };
        check_types(&package, &file.message_type)?;
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_proto(file).map_err(|error| error.to_string())?;
        let file = pool.get_file_by_name(FILE).ok_or("it is empty")?;
        let mut messages = file.messages();
        match (messages.next(), messages.next()) {
            (Some(message), None) => Ok(Self { message }),
            (Some(_), Some(_)) => Err("it has more than one message type at the top".to_owned()),
            (None, _) => Err("it has no message type".to_owned()),
        }
    }

    /// Says why a binary message does not fit, if so.
    pub(super) fn check_binary(&self, data: &[u8]) -> Result<(), String> {
        let message =
            DynamicMessage::decode(self.message.clone(), data).map_err(|error| error.to_string())?;
        check(&message)
    }

    /// Says why a message in JSON does not fit, if so.
    pub(super) fn check_json(&self, data: &[u8]) -> Result<(), String> {
        let mut reader = serde_json::Deserializer::from_slice(data);
        let message = DynamicMessage::deserialize(self.message.clone(), &mut reader);
        let message = message.map_err(|error| error.to_string())?;
        reader.end().map_err(|error| error.to_string())?;
        check(&message)
    }

    /// Says why this is not a revision of an earlier schema, if so: only optional fields may come
    /// and go.
    pub(super) fn revises(&self, earlier: &Self) -> Result<(), String> {
        compare(&earlier.message, &self.message)
    }
}

/// Refuses what the reader takes for its own: types of Google's names, for which it has other
/// rules, and the types of maps' entries, of which it expects a key and a value.
fn check_types(scope: &str, messages: &[DescriptorProto]) -> Result<(), String> {
    for message in messages {
        let name = format!("{scope}.{}", message.name());
        if name.starts_with(".google.protobuf.") {
            return Err(format!("{} is the name of a type of Protocol Buffers itself", &name[1..]));
        }
        let mut options = message.options.iter().flat_map(|options| &options.uninterpreted_option);
        if options.any(|option| option.name.iter().any(|part| part.name_part == "map_entry")) {
            return Err(format!("{} sets map_entry, and only a map may", &name[1..]));
        }
        check_types(&name, &message.nested_type)?;
    }
    Ok(())
}

/// Refuses fields that the definition does not have, and a message without its required ones.
fn check(message: &DynamicMessage) -> Result<(), String> {
    let descriptor = message.descriptor();
    if let Some(unknown) = message.unknown_fields().next() {
        return Err(format!("{} has no field {}", descriptor.full_name(), unknown.number()));
    }
    let mut required = descriptor.fields().filter(|field| field.cardinality() == Cardinality::Required);
    if let Some(missing) = required.find(|field| !message.has_field(field)) {
        return Err(format!("the required field {} is missing", missing.full_name()));
    }
    message.fields().try_for_each(|(_, value)| check_value(value))
}

fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::Message(message) => check(message),
        Value::List(values) => values.iter().try_for_each(check_value),
        Value::Map(entries) => entries.values().try_for_each(check_value),
        Value::Bool(_)
        | Value::I32(_)
        | Value::I64(_)
        | Value::U32(_)
        | Value::U64(_)
        | Value::F32(_)
        | Value::F64(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::EnumNumber(_) => Ok(()),
    }
}

/// Compares the fields of two message types, and of the types in them that both have.
fn compare(earlier: &MessageDescriptor, later: &MessageDescriptor) -> Result<(), String> {
    if earlier.full_name() != later.full_name() {
        return Err(format!("the message type {} became {}", earlier.full_name(), later.full_name()));
    }
    for field in earlier.fields().chain(later.fields()) {
        match (earlier.get_field(field.number()), later.get_field(field.number())) {
            (Some(before), Some(after)) if !same(&before, &after) => {
                return Err(format!("the field {} was changed", before.full_name()));
            }
            (Some(_), Some(_)) => {}
            (Some(_), None) | (None, Some(_)) | (None, None)
                if field.cardinality() == Cardinality::Optional => {}
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                let name = field.full_name();
                return Err(format!("{name} is not an optional field, and only those may come and go"));
            }
        }
    }
    for inner in earlier.child_messages() {
        if let Some(revised) = later.child_messages().find(|other| other.name() == inner.name()) {
            compare(&inner, &revised)?;
        }
    }
    Ok(())
}

fn same(before: &FieldDescriptor, after: &FieldDescriptor) -> bool {
    let (before, after) = (before.field_descriptor_proto(), after.field_descriptor_proto());
    before.name == after.name
        && before.label == after.label
        && before.r#type == after.r#type
        && before.type_name == after.type_name
        && before.default_value == after.default_value
        && before.proto3_optional == after.proto3_optional
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"syntax = "proto3"; package utilities;
        message State { string name = 1; repeated int32 codes = 2; Part part = 3; map<string, Part> parts = 4;
            message Part { int64 size = 1; } }"#;

    fn schema(text: &str) -> ProtoSchema {
        ProtoSchema::parse(text).unwrap()
    }

    #[test]
    fn a_definition_has_one_message_type_and_imports_nothing() {
        schema("message Old { required int32 a = 1; optional string b = 2 [default = \"x\"]; }");
        schema(STATE);
        let table = [
            ("", "no message type"),
            ("not a definition", "expected"),
            (r#"syntax = "proto3"; enum E { ZERO = 0; }"#, "no message type"),
            (r#"syntax = "proto3"; message A {} message B {}"#, "more than one message type"),
            (r#"syntax = "proto3"; message A { Missing m = 1; }"#, "Missing"),
            (r#"syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }"#, "already used"),
            (
                r#"syntax = "proto3"; import "google/protobuf/timestamp.proto";
                   message A { google.protobuf.Timestamp at = 1; }"#,
                "import statements are not supported",
            ),
            (
                r#"syntax = "proto3";
                   message A { repeated E e = 1; message E { option map_entry = true; int32 x = 5; } }"#,
                "map_entry",
            ),
            (
                r#"syntax = "proto3"; package google.protobuf; message Any { int32 a = 1; }"#,
                "google.protobuf.Any",
            ),
            (
                r#"syntax = "proto2"; package google; message protobuf { option deprecated = true;
                   message MessageOptions { optional string deprecated = 3; } }"#,
                "google.protobuf.MessageOptions",
            ),
        ];
        for (text, words) in table {
            let refusal = ProtoSchema::parse(text).unwrap_err();
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }

    #[test]
    fn messages_fit_in_either_encoding() {
        let state = schema(STATE);
        for json in [
            "{}",
            r#"{"name": "Alaska", "codes": [1, "2"], "part": {"size": "9"}}"#,
            r#"{"parts": {"a": {"size": 1}}}"#,
        ] {
            assert_eq!(state.check_json(json.as_bytes()), Ok(()), "{json}");
        }
        for json in ["", "[]", "{} x", r#"{"name": 1}"#, r#"{"nmae": "Alaska"}"#, r#"{"codes": [1.5]}"#] {
            assert!(state.check_json(json.as_bytes()).is_err(), "{json}");
        }
        let alaska = [[0x0a, 6].as_slice(), b"Alaska", &[0x12, 2, 1, 2, 0x1a, 2, 0x08, 9]].concat();
        for binary in [alaska.as_slice(), &[]] {
            assert_eq!(state.check_binary(binary), Ok(()));
        }
        let refused: [&[u8]; 6] = [
            &alaska[..5],
            br#"{"name": "A"}"#,
            &[0x0a, 1, 0xff],
            &[0x08, 1],
            &[0x28, 1],
            &[0x1a, 2, 0x10, 1],
        ];
        for binary in refused {
            assert!(state.check_binary(binary).is_err(), "{binary:?}");
        }
    }

    #[test]
    fn required_fields_are_there() {
        let old = schema("message Old { required int32 a = 1; optional Old more = 2; }");
        assert_eq!(old.check_json(br#"{"a": 0, "more": {"a": 1}}"#), Ok(()));
        assert!(old.check_json(br#"{"a": 0, "more": {}}"#).unwrap_err().contains("Old.a is missing"));
        assert_eq!(old.check_binary(&[0x08, 0]), Ok(()));
        assert!(old.check_binary(&[]).is_err());
        let deep = [0x12, 0x7f].repeat(1_000);
        assert!(old.check_binary(&deep).is_err());
    }

    #[test]
    fn only_optional_fields_come_and_go() {
        let before = schema(
            r#"syntax = "proto3";
            message M { string a = 1; repeated int32 c = 3; P p = 4; message P { int32 x = 1; } }"#,
        );
        let after = |fields: &str| {
            schema(&format!(r#"syntax = "proto3"; message M {{ {fields} }}"#)).revises(&before)
        };
        let rest = "repeated int32 c = 3; P p = 4; message P { int32 x = 1; }";
        assert_eq!(after(&format!("string a = 1; string b = 2; {rest}")), Ok(()));
        assert_eq!(after(rest), Ok(()));
        for changed in [
            format!("string renamed = 1; {rest}"),
            format!("bytes a = 1; {rest}"),
            format!("repeated string a = 1; {rest}"),
            format!("string a = 1; repeated string b = 2; {rest}"),
            "string a = 1; P p = 4; message P { int32 x = 1; }".to_owned(),
            "string a = 1; repeated int32 c = 3; P p = 4; message P { string x = 1; }".to_owned(),
        ] {
            assert!(after(&changed).is_err(), "{changed}");
        }
        assert!(schema(r#"syntax = "proto3"; message N {}"#).revises(&before).is_err());
    }
}
