//! Avro schemas, by the specification 1.11: what a definition says, which messages fit it, and
//! which definitions may follow each other.
//!
//! Messages are walked and never turned into values, so that a few bytes which claim to be a
//! billion items take neither memory nor time.

mod binary;
mod json;
mod parser;
mod resolution;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

/// How deeply values and types may be nested.
const DEPTH_MAX: usize = 128;
/// How many values a message may consist of, whatever its size, and more for each of its bytes:
/// some values take none.
const VALUES_MIN: usize = 10_000;
const VALUES_PER_BYTE: usize = 32;
/// How many pairs of types of two definitions are compared.
const PAIRS_MAX: usize = 1_000_000;

/// The place of a type in the list of its schema.
type TypeId = usize;

/// A schema, whose type is a record.
#[derive(Debug)]
pub(super) struct AvroSchema {
    types: Vec<AvroType>,
    root: TypeId,
}

#[derive(Debug)]
enum AvroType {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Record(Record),
    Enum(Enumeration),
    Fixed(Fixed),
    Array(TypeId),
    Map(TypeId),
    Union(Branches),
}

#[derive(Debug)]
struct Record {
    name: TypeName,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    aliases: Vec<String>,
    of: TypeId,
    has_default: bool,
}

/// The types of a union, in its order and by the names that they have in it.
#[derive(Debug, Default)]
struct Branches {
    ids: Vec<TypeId>,
    by_name: BTreeMap<String, TypeId>,
}

#[derive(Debug)]
struct Enumeration {
    name: TypeName,
    symbols: BTreeSet<String>,
    has_default: bool,
}

#[derive(Debug)]
struct Fixed {
    name: TypeName,
    size: usize,
}

/// The name of a type, and those that it had before, all with their namespaces.
#[derive(Clone, Debug)]
struct TypeName {
    full: String,
    aliases: Vec<String>,
}

impl TypeName {
    /// The namespace; empty if there is none.
    fn namespace(&self) -> &str {
        self.full.rsplit_once('.').map_or("", |(namespace, _)| namespace)
    }

    /// Whether what was written under another name can be read under this one.
    fn reads(&self, written: &Self) -> bool {
        short(&self.full) == short(&written.full) || self.aliases.contains(&written.full)
    }
}

impl AvroType {
    /// What a branch of a union is called.
    fn branch(&self) -> &str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Record(record) => &record.name.full,
            Self::Enum(enumeration) => &enumeration.name.full,
            Self::Fixed(fixed) => &fixed.name.full,
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
        }
    }

    /// A primitive type by its name.
    fn primitive(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "int" => Self::Int,
            "long" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "bytes" => Self::Bytes,
            "string" => Self::String,
            _ => return None,
        })
    }
}

/// What is left of the values that a message, or all defaults of a definition, may have.
struct Budget {
    left: usize,
    most: usize,
}

impl Budget {
    /// That of so many bytes.
    fn of(bytes: usize) -> Self {
        let most = bytes.saturating_mul(VALUES_PER_BYTE).saturating_add(VALUES_MIN);
        Self { left: most, most }
    }

    /// Counts a value at a depth.
    fn spend(&mut self, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} values are nested"));
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| format!("more than {} values", self.most))?;
        Ok(())
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Says in which field something is wrong.
fn within(field: &str, why: &str) -> String {
    format!("{field}: {why}")
}
