//! Schemas as they come back after a restart, and the marks that their messages have then.

use std::sync::Arc;

use super::definition::Definition;
use super::mark::{self, Deleted, Marks};
use super::{Revision, Schema, SchemaMark};
use crate::broker::{Answer, Broker, Name, Refusal, Time};
use crate::proto::pubsub::{self, schema::Type};

/// A schema whose definitions were not read yet.
#[derive(Debug)]
pub(in crate::broker) struct SavedSchema {
    name: Name,
    kind: Type,
    number: u64,
    /// The oldest first.
    revisions: Vec<SavedRevision>,
    deleted: Deleted,
}

#[derive(Debug)]
struct SavedRevision {
    number: u64,
    config: pubsub::Schema,
    marks: Marks,
}

impl SavedSchema {
    /// One without revisions.
    pub(in crate::broker) fn new(name: Name, kind: Type, number: u64) -> Self {
        Self { name, kind, number, revisions: Vec::new(), deleted: Deleted::default() }
    }

    /// Adds a revision after all others.
    pub(in crate::broker) fn add(&mut self, number: u64, config: pubsub::Schema) {
        let marks = Marks::new(self.name.clone(), &self.deleted, config.revision_id.as_str().into(), number);
        self.revisions.push(SavedRevision { number, config, marks });
    }

    /// Deletes a revision, which shows in its messages.
    pub(in crate::broker) fn remove(&mut self, number: u64) {
        for revision in self.revisions.extract_if(.., |revision| revision.number == number) {
            revision.marks.delete();
        }
    }

    /// Shows in all messages that it is deleted.
    pub(in crate::broker) fn delete(&self) {
        mark::set(&self.deleted);
        self.revisions.iter().for_each(|revision| revision.marks.delete());
    }

    /// The mark of a message that was validated with a schema of this name.
    pub(in crate::broker) fn mark(&self, noted: &SchemaMark) -> Arc<SchemaMark> {
        match self.revisions.iter().find(|revision| revision.number == noted.number) {
            Some(revision) => revision.marks.of(noted.encoding),
            None if noted.number >= self.number => Arc::new(noted.without_revision(&self.deleted)),
            // That was an earlier schema.
            None => Arc::new(noted.without_schema()),
        }
    }

    fn read(self) -> Answer<Schema> {
        let Self { name, kind, number, revisions, deleted } = self;
        let revisions: Answer<Vec<_>> =
            revisions.into_iter().map(|revision| revision.read().map_err(|why| about(&name, why))).collect();
        Ok(Schema { revisions: revisions?, name, kind, number, deleted })
    }
}

impl SavedRevision {
    fn read(self) -> Answer<Revision> {
        let Self { number, config, marks } = self;
        let definition = Arc::new(Definition::of(&config)?);
        let created = config.revision_create_time.as_ref().and_then(Time::from_timestamp);
        Ok(Revision {
            number,
            id: config.revision_id.into(),
            created: created.unwrap_or_default(),
            text: config.definition.into(),
            definition,
            marks,
        })
    }
}

fn about(name: &str, why: Refusal) -> Refusal {
    Refusal { message: format!("{name}: {}", why.message), ..why }
}

impl Broker {
    /// Takes over a schema.
    pub(in crate::broker) fn load_schema(&mut self, name: Name, saved: SavedSchema) -> Answer<()> {
        self.schemas.insert(name, saved.read()?);
        Ok(())
    }
}
