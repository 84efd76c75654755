//! Compares a message in Avro's JSON encoding with a schema, and the default of a field with its
//! type.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{AvroSchema, AvroType, Branches, Budget, Record, TypeId, within};

/// The branch of a union whose value has no name.
const NULL: &str = "null";

/// The two forms of values in JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// A message: a value of a union names its branch, and no field is left out.
    Message,
    /// A default: a value of a union is one of its first fitting branch.
    Default,
}

impl AvroSchema {
    /// Says why a message in JSON does not fit, if so.
    pub(in crate::broker::schemas) fn check_json(&self, data: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_slice(data).map_err(|error| format!("not JSON: {error}"))?;
        let mut walk = JsonWalk { schema: self, form: Form::Message, budget: Budget::of(data.len()) };
        walk.value(self.root, &value, 0)
    }

    /// Says which field of a definition with this size has a default that is none of its type, if
    /// so.
    pub(super) fn check_defaults(
        &self,
        bytes: usize,
        defaults: Vec<(String, TypeId, &Value)>,
    ) -> Result<(), String> {
        let mut walk = JsonWalk { schema: self, form: Form::Default, budget: Budget::of(bytes) };
        defaults.into_iter().try_for_each(|(field, of, value)| {
            walk.value(of, value, 0).map_err(|why| format!("the default of {field}: {why}"))
        })
    }
}

struct JsonWalk<'schema> {
    schema: &'schema AvroSchema,
    form: Form,
    budget: Budget,
}

impl JsonWalk<'_> {
    fn value(&mut self, of: TypeId, value: &Value, depth: usize) -> Result<(), String> {
        self.budget.spend(depth)?;
        let schema = self.schema;
        match &schema.types[of] {
            AvroType::Null => expect(value.is_null(), value, "null"),
            AvroType::Boolean => expect(value.is_boolean(), value, "boolean"),
            AvroType::Int => {
                let number = value.as_i64().ok_or_else(|| unexpected(value, "number_integer"))?;
                i32::try_from(number)
                    .map(|_| ())
                    .map_err(|_| format!("{number} is out of the range of an int"))
            }
            AvroType::Long => expect(value.as_i64().is_some(), value, "number_integer"),
            AvroType::Float | AvroType::Double => expect(is_number(value), value, "number_float"),
            AvroType::Bytes => bytes(value).map(|_| ()),
            AvroType::Fixed(fixed) => match bytes(value)? {
                size if size == fixed.size => Ok(()),
                size => Err(format!("{size} bytes are not the {} of {}", fixed.size, fixed.name.full)),
            },
            AvroType::String => expect(value.is_string(), value, "string"),
            AvroType::Enum(enumeration) => {
                let symbol = value.as_str().ok_or_else(|| unexpected(value, "string"))?;
                let known = enumeration.symbols.contains(symbol);
                if known { Ok(()) } else { Err(format!("{} has no such symbol", enumeration.name.full)) }
            }
            AvroType::Array(items) => {
                let values = value.as_array().ok_or_else(|| unexpected(value, "array"))?;
                values.iter().try_for_each(|value| self.value(*items, value, depth + 1))
            }
            AvroType::Map(values) => {
                let entries = value.as_object().ok_or_else(|| unexpected(value, "object"))?;
                entries.values().try_for_each(|value| self.value(*values, value, depth + 1))
            }
            AvroType::Record(record) => {
                let object = value.as_object().ok_or_else(|| unexpected(value, "object"))?;
                self.record(record, object, depth)
            }
            AvroType::Union(branches) => self.union(branches, value, depth),
        }
    }

    fn record(&mut self, record: &Record, object: &Map<String, Value>, depth: usize) -> Result<(), String> {
        for field in &record.fields {
            match object.get(&field.name) {
                Some(value) => {
                    self.value(field.of, value, depth + 1).map_err(|why| within(&field.name, &why))?;
                }
                None if self.form == Form::Default && field.has_default => {}
                None => return Err(format!("the field {} is missing", field.name)),
            }
        }
        if object.len() <= record.fields.len() {
            return Ok(());
        }
        let known: BTreeSet<&str> = record.fields.iter().map(|field| field.name.as_str()).collect();
        match object.keys().find(|key| !known.contains(key.as_str())) {
            Some(unknown) => Err(format!("the field {unknown} is unknown")),
            None => Ok(()),
        }
    }

    fn union(&mut self, branches: &Branches, value: &Value, depth: usize) -> Result<(), String> {
        if self.form == Form::Default {
            let fits = branches.ids.iter().any(|branch| self.value(*branch, value, depth + 1).is_ok());
            return expect(fits, value, "one of a union's types");
        }
        if value.is_null() {
            return expect(branches.by_name.contains_key(NULL), value, "one of a union's types");
        }
        let mut entries = value.as_object().into_iter().flatten();
        let (Some((name, value)), None) = (entries.next(), entries.next()) else {
            return Err(unexpected(value, "an object with the name of one of a union's types"));
        };
        match branches.by_name.get(name).filter(|_| name != NULL) {
            Some(branch) => self.value(*branch, value, depth + 1).map_err(|why| within(name, &why)),
            None => Err(format!("the union has no type {name}")),
        }
    }
}

fn is_number(value: &Value) -> bool {
    value.is_number() || value.as_str().is_some_and(|text| ["NaN", "Infinity", "-Infinity"].contains(&text))
}

/// The number of bytes in a string, each of which is a character up to U+00FF.
fn bytes(value: &Value) -> Result<usize, String> {
    let text = value.as_str().ok_or_else(|| unexpected(value, "string"))?;
    if text.chars().any(|character| u32::from(character) > 0xff) {
        return Err("a character of a string of bytes is above U+00FF".to_owned());
    }
    Ok(text.chars().count())
}

fn expect(fits: bool, value: &Value, expected: &str) -> Result<(), String> {
    if fits { Ok(()) } else { Err(unexpected(value, expected)) }
}

/// The service's words.
fn unexpected(value: &Value, expected: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number_float",
        Value::Number(_) => "number_integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("JSON object with type {found} does not match schema which expected {expected}")
}
