//! What a message says of the schema that it was validated against.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::DELETED_SCHEMA;
use crate::broker::Name;
use crate::proto::pubsub::Encoding;

const DELETED_REVISION: &str = "_deleted-schema-revision_";

/// Set once something is deleted.
pub(super) type Deleted = Arc<OnceLock<()>>;

/// The revision of a schema, and the encoding, with which a message was validated.
///
/// All messages of a revision share it, so that a deletion shows in those that were published
/// before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchemaMark {
    pub(crate) schema: Name,
    pub(crate) revision: Arc<str>,
    /// The number of the revision, which no other one has.
    pub(crate) number: u64,
    pub(crate) encoding: Encoding,
    /// Set once the schema is deleted.
    schema_deleted: Deleted,
    /// Set once the revision is deleted, be it with its schema.
    revision_deleted: Deleted,
}

impl SchemaMark {
    /// One that no other message shares.
    pub(crate) fn new(schema: Name, revision: Arc<str>, number: u64, encoding: Encoding) -> Self {
        let (schema_deleted, revision_deleted) = (Deleted::default(), Deleted::default());
        Self { schema, revision, number, encoding, schema_deleted, revision_deleted }
    }

    /// The same of a revision that is deleted; of the schema, that will tell.
    pub(super) fn without_revision(&self, schema_deleted: &Deleted) -> Self {
        Self { schema_deleted: Arc::clone(schema_deleted), revision_deleted: deleted(), ..self.clone() }
    }

    /// The same of a schema that is deleted.
    pub(in crate::broker) fn without_schema(&self) -> Self {
        self.without_revision(&deleted())
    }

    /// Adds the attributes with which the service delivers such a message.
    pub(crate) fn write(&self, attributes: &mut BTreeMap<String, String>) {
        let is_deleted = |deleted: &Deleted| deleted.get().is_some();
        let schema = if is_deleted(&self.schema_deleted) { DELETED_SCHEMA } else { &self.schema };
        let revision = if is_deleted(&self.revision_deleted) { DELETED_REVISION } else { &self.revision };
        let of_schema =
            [("name", schema), ("encoding", self.encoding.as_str_name()), ("revisionid", revision)];
        attributes
            .extend(of_schema.map(|(key, value)| (format!("googclient_schema{key}"), value.to_owned())));
    }
}

/// The marks of a revision's messages, in either encoding.
#[derive(Debug)]
pub(super) struct Marks {
    json: Arc<SchemaMark>,
    binary: Arc<SchemaMark>,
}

impl Marks {
    /// Those of a revision that is not deleted.
    pub(super) fn new(schema: Name, schema_deleted: &Deleted, revision: Arc<str>, number: u64) -> Self {
        let mark = SchemaMark::new(schema, revision, number, Encoding::Json);
        let json = SchemaMark { schema_deleted: Arc::clone(schema_deleted), ..mark };
        let binary = SchemaMark { encoding: Encoding::Binary, ..json.clone() };
        Self { json: Arc::new(json), binary: Arc::new(binary) }
    }

    /// The mark of messages in this encoding.
    pub(super) fn of(&self, encoding: Encoding) -> Arc<SchemaMark> {
        Arc::clone(if encoding == Encoding::Binary { &self.binary } else { &self.json })
    }

    /// Shows in all messages that the revision is deleted.
    pub(super) fn delete(&self) {
        set(&self.json.revision_deleted);
    }
}

/// Sets a mark of deletion, which may be set already.
pub(super) fn set(deleted: &Deleted) {
    let _first: Result<(), ()> = deleted.set(());
}

fn deleted() -> Deleted {
    Arc::new(OnceLock::from(()))
}
