//! What a message says of the schema that it was validated against.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::DELETED_SCHEMA;
use crate::broker::Name;
use crate::proto::pubsub::Encoding;

const DELETED_REVISION: &str = "_deleted-schema-revision_";

/// The revision of a schema, and the encoding, with which a message was validated.
///
/// All messages of a revision share it, so that a deletion shows in those that were published
/// before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SchemaMark {
    pub(super) schema: Name,
    pub(super) revision: Arc<str>,
    pub(super) encoding: Encoding,
    /// Set once the schema is deleted.
    pub(super) schema_deleted: Arc<OnceLock<()>>,
    /// Set once the revision is deleted.
    pub(super) revision_deleted: Arc<OnceLock<()>>,
}

impl SchemaMark {
    /// Adds the attributes with which the service delivers such a message.
    pub(crate) fn write(&self, attributes: &mut BTreeMap<String, String>) {
        let is_deleted = self.schema_deleted.get().is_some();
        let schema = if is_deleted { DELETED_SCHEMA } else { &self.schema };
        let is_deleted = is_deleted || self.revision_deleted.get().is_some();
        let revision = if is_deleted { DELETED_REVISION } else { &self.revision };
        let of_schema =
            [("name", schema), ("encoding", self.encoding.as_str_name()), ("revisionid", revision)];
        attributes
            .extend(of_schema.map(|(key, value)| (format!("googclient_schema{key}"), value.to_owned())));
    }
}
