//! Reads the definition of an Avro schema.
//!
//! Logical types are annotations here: a value only has to fit the type that is annotated.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{AvroSchema, AvroType, Branches, Enumeration, Field, Fixed, Record, TypeId, TypeName};

type Object = Map<String, Value>;

impl AvroSchema {
    /// Reads a definition, or says why it is not a schema of a record.
    pub(in crate::broker::schemas) fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut parser = Parser { types: Vec::new(), names: BTreeMap::new(), defaults: Vec::new() };
        let root = parser.any(&value, "")?;
        let Parser { types, defaults, .. } = parser;
        let schema = Self { types, root };
        if !matches!(schema.types[root], AvroType::Record(_)) {
            return Err("the type at the top is not a record".to_owned());
        }
        schema.check_defaults(text.len(), defaults)?;
        Ok(schema)
    }
}

struct Parser<'text> {
    types: Vec<AvroType>,
    /// The named types so far.
    names: BTreeMap<String, TypeId>,
    /// The defaults of fields, to be compared with types that are known only at the end.
    defaults: Vec<(String, TypeId, &'text Value)>,
}

impl<'text> Parser<'text> {
    fn any(&mut self, value: &'text Value, namespace: &str) -> Result<TypeId, String> {
        match value {
            Value::String(name) => self.referred(name, namespace),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(object) => self.object(object, namespace),
            Value::Null | Value::Bool(_) | Value::Number(_) => Err(format!("{value} is not a type")),
        }
    }

    fn object(&mut self, object: &'text Object, namespace: &str) -> Result<TypeId, String> {
        let kind = object.get("type").ok_or("a type has no \"type\"")?;
        match kind.as_str() {
            Some("record" | "error") => self.record(object, namespace),
            Some("enum") => self.enumeration(object, namespace),
            Some("fixed") => self.fixed(object, namespace),
            Some("array") => {
                let items = object.get("items").ok_or("an array has no \"items\"")?;
                let of = self.any(items, namespace)?;
                Ok(self.add(AvroType::Array(of)))
            }
            Some("map") => {
                let values = object.get("values").ok_or("a map has no \"values\"")?;
                let of = self.any(values, namespace)?;
                Ok(self.add(AvroType::Map(of)))
            }
            Some(_) | None => self.any(kind, namespace),
        }
    }

    /// A type that is only named: a primitive one, or one that was declared before.
    fn referred(&mut self, name: &str, namespace: &str) -> Result<TypeId, String> {
        if let Some(primitive) = AvroType::primitive(name) {
            return Ok(self.add(primitive));
        }
        let known = self.names.get(&full(name, namespace)).or_else(|| self.names.get(name));
        known.copied().ok_or_else(|| format!("the type {name} is not declared before it is used"))
    }

    fn union(&mut self, branches: &'text [Value], namespace: &str) -> Result<TypeId, String> {
        let mut found = Branches::default();
        for branch in branches {
            let id = self.any(branch, namespace)?;
            if matches!(self.types[id], AvroType::Union(_)) {
                return Err("a union is a branch of another union".to_owned());
            }
            if found.by_name.insert(self.types[id].branch().to_owned(), id).is_some() {
                return Err(format!("a union has more than one branch {}", self.types[id].branch()));
            }
            found.ids.push(id);
        }
        if found.ids.is_empty() {
            return Err("a union has no branch".to_owned());
        }
        Ok(self.add(AvroType::Union(found)))
    }

    fn record(&mut self, object: &'text Object, namespace: &str) -> Result<TypeId, String> {
        let name = named(object, namespace)?;
        // Before its fields, which may be of its own type.
        let id = self.declare(&name, AvroType::Record(Record { name: name.clone(), fields: Vec::new() }))?;
        let Some(Value::Array(list)) = object.get("fields") else {
            return Err(format!("the record {} has no list of fields", name.full));
        };
        let mut names = BTreeSet::new();
        let mut fields = Vec::with_capacity(list.len());
        for field in list {
            let field = self.field(field, &name)?;
            if !names.insert(field.name.clone()) {
                return Err(format!("the record {} has more than one field {}", name.full, field.name));
            }
            fields.push(field);
        }
        self.types[id] = AvroType::Record(Record { name, fields });
        Ok(id)
    }

    fn field(&mut self, value: &'text Value, record: &TypeName) -> Result<Field, String> {
        let object =
            value.as_object().ok_or_else(|| format!("a field of {} is not an object", record.full))?;
        let name = text(object, "name").filter(|name| is_name(name));
        let name = name.ok_or_else(|| format!("a field of {} has no valid name", record.full))?;
        let of = object.get("type").ok_or_else(|| format!("the field {name} has no type"))?;
        let of = self.any(of, record.namespace())?;
        let default = object.get("default");
        if let Some(default) = default {
            self.defaults.push((name.to_owned(), of, default));
        }
        let aliases = texts(object, "aliases")?;
        Ok(Field { name: name.to_owned(), aliases, of, has_default: default.is_some() })
    }

    fn enumeration(&mut self, object: &Object, namespace: &str) -> Result<TypeId, String> {
        let name = named(object, namespace)?;
        let listed = texts(object, "symbols")?;
        let count = listed.len();
        let symbols: BTreeSet<String> = listed.into_iter().collect();
        if symbols.is_empty() || symbols.len() < count || !symbols.iter().all(|name| is_name(name)) {
            return Err(format!("the enum {} has no symbols that are names and differ", name.full));
        }
        let default = text(object, "default");
        if default.is_some_and(|default| !symbols.contains(default)) {
            return Err(format!("the default of the enum {} is not one of its symbols", name.full));
        }
        let has_default = default.is_some();
        self.declare(&name.clone(), AvroType::Enum(Enumeration { name, symbols, has_default }))
    }

    fn fixed(&mut self, object: &Object, namespace: &str) -> Result<TypeId, String> {
        let name = named(object, namespace)?;
        let size = object.get("size").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| format!("the fixed type {} has no size", name.full))?;
        self.declare(&name.clone(), AvroType::Fixed(Fixed { name, size }))
    }

    fn declare(&mut self, name: &TypeName, declared: AvroType) -> Result<TypeId, String> {
        let id = self.add(declared);
        match self.names.insert(name.full.clone(), id) {
            Some(_) => Err(format!("the type {} is declared more than once", name.full)),
            None => Ok(id),
        }
    }

    fn add(&mut self, added: AvroType) -> TypeId {
        self.types.push(added);
        self.types.len() - 1
    }
}

/// The name of a declared type, with the namespace that is stated or inherited.
fn named(object: &Object, namespace: &str) -> Result<TypeName, String> {
    let name = text(object, "name").ok_or("a type has no name")?;
    let namespace = text(object, "namespace").unwrap_or(namespace);
    let full_name = full(name, namespace);
    if !full_name.split('.').all(is_name) || AvroType::primitive(&full_name).is_some() {
        return Err(format!("{full_name} is not a valid name of a type"));
    }
    let own = full_name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
    let aliases = texts(object, "aliases")?.iter().map(|alias| full(alias, own)).collect();
    Ok(TypeName { full: full_name, aliases })
}

/// A name that has dots is complete.
fn full(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn text<'object>(object: &'object Object, key: &str) -> Option<&'object str> {
    object.get(key).and_then(Value::as_str)
}

/// A list of strings; empty if there is none.
fn texts(object: &Object, key: &str) -> Result<Vec<String>, String> {
    let Some(value) = object.get(key) else { return Ok(Vec::new()) };
    let list: Option<Vec<String>> = value
        .as_array()
        .and_then(|values| values.iter().map(|value| value.as_str().map(str::to_owned)).collect());
    list.ok_or_else(|| format!("\"{key}\" is not a list of strings"))
}
