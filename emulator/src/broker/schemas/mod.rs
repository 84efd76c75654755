//! Schemas: create, get, list, delete. Their revisions are in `revisions`, what is asked without a
//! change in `validation`, and what topics make of them in `topic`.
//!
//! A schema and all its revisions are bounded by the service's limits. Each revision is read once.

mod avro;
mod definition;
mod mark;
mod proto;
mod revisions;
mod saved;
mod topic;
mod validation;

use std::ops::Bound;
use std::sync::Arc;

use tonic::Code;

use super::changes::Change;
use super::names::{self, Kind};
use super::pages::Page;
use super::{Answer, Broker, Name, Refusal, Time, limits};
use crate::proto::pubsub::schema::Type;
use crate::proto::pubsub::{self, SchemaView};

use definition::Definition;
use mark::{Deleted, Marks};

pub use mark::SchemaMark;
pub(crate) use revisions::Committed;
pub(super) use saved::SavedSchema;
pub(crate) use topic::{CheckedMessages, RevisionRange, TopicSchema};
pub(crate) use validation::validate_schema;

/// The schema of a topic whose schema was deleted.
const DELETED_SCHEMA: &str = "_deleted-schema_";

/// A schema and its revisions.
pub(super) struct Schema {
    pub(super) name: Name,
    kind: Type,
    /// That of its first revision: distinguishes it from a deleted one of the same name, whose
    /// revisions have lower ones.
    number: u64,
    /// The oldest first.
    revisions: Vec<Revision>,
    deleted: Deleted,
}

/// A revision of a schema.
struct Revision {
    /// Increases from one revision to the next.
    number: u64,
    id: Arc<str>,
    created: Time,
    text: Arc<str>,
    definition: Arc<Definition>,
    marks: Marks,
}

impl Schema {
    fn new(name: Name, kind: Type, number: u64) -> Self {
        Self { name, kind, number, revisions: Vec::new(), deleted: Deleted::default() }
    }

    /// The type, as the API names it.
    pub(super) fn kind(&self) -> &'static str {
        self.kind.as_str_name()
    }

    /// The ids of the revisions, the oldest first.
    pub(super) fn revision_ids(&self) -> impl ExactSizeIterator<Item = &str> {
        self.revisions.iter().map(|revision| &*revision.id)
    }

    fn latest(&self) -> Answer<&Revision> {
        self.revisions.last().ok_or_else(|| Refusal::not_found(&self.name))
    }

    fn revision(&self, id: &str) -> Option<&Revision> {
        self.revisions.iter().find(|revision| *revision.id == *id)
    }

    /// Adds a revision after all others.
    fn add(&mut self, now: Time, number: u64, text: Arc<str>, definition: Arc<Definition>) {
        let id = revision_id(number, |id| self.revision(id).is_some());
        let marks = Marks::new(self.name.clone(), &self.deleted, Arc::clone(&id), number);
        self.revisions.push(Revision { number, id, created: now, text, definition, marks });
    }

    /// Shows in all messages that it is deleted.
    fn delete(&self) {
        mark::set(&self.deleted);
        self.revisions.iter().for_each(|revision| revision.marks.delete());
    }

    /// What is noted of a revision.
    fn change(&self, revision: &Revision) -> Change {
        let config = Box::new(self.shown(revision, SchemaView::Full));
        Change::Revision { schema: self.number, number: revision.number, config }
    }

    /// What is noted of its revisions.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.revisions.iter().map(|revision| self.change(revision))
    }

    /// A revision as the API shows it; the definition only in the full view.
    fn shown(&self, revision: &Revision, view: SchemaView) -> pubsub::Schema {
        let definition = if view == SchemaView::Full { revision.text.to_string() } else { String::new() };
        pubsub::Schema {
            name: self.name.to_string(),
            r#type: self.kind.into(),
            definition,
            revision_id: revision.id.to_string(),
            revision_create_time: Some(revision.created.timestamp()),
        }
    }
}

/// A schema to create, whose definition was read. It needs no broker, so that it can be read while
/// that is not locked.
pub(crate) struct NewSchema {
    name: Name,
    text: Arc<str>,
    definition: Definition,
}

impl NewSchema {
    pub(crate) fn read(request: pubsub::CreateSchemaRequest) -> Answer<Self> {
        let prefix = Kind::Schema.prefix(names::project(&request.parent)?);
        let name = names::own(Kind::Schema, "name", &format!("{prefix}{}", request.schema_id))?;
        let wanted = request.schema.unwrap_or_default();
        let definition = Definition::of(&wanted)?;
        Ok(Self { name, text: wanted.definition.into(), definition })
    }
}

impl Broker {
    /// Creates a schema with its first revision.
    pub fn create_schema(
        &mut self,
        now: Time,
        request: pubsub::CreateSchemaRequest,
    ) -> Answer<pubsub::Schema> {
        self.create_read_schema(now, NewSchema::read(request)?)
    }

    /// The same with one whose definition was read before.
    pub(crate) fn create_read_schema(&mut self, now: Time, new: NewSchema) -> Answer<pubsub::Schema> {
        let NewSchema { name, text, definition } = new;
        if self.schemas.contains_key(&name) {
            return Err(Refusal::already_exists(&name));
        }
        let prefix = Kind::Schema.prefix(names::project_of(&name));
        let present = self.schemas_of(&prefix).count();
        if present >= limits::MOST_SCHEMAS {
            return Err(exhausted(format!("The project has {present} schemas, which is the limit.")));
        }
        let number = self.next_resource();
        let mut schema = Schema::new(name.clone(), definition.kind(), number);
        schema.add(now, number, text, Arc::new(definition));
        let latest = schema.latest()?;
        self.ledger.note(|| schema.change(latest));
        let created = schema.shown(latest, SchemaView::Full);
        self.schemas.insert(name, schema);
        Ok(created)
    }

    /// Returns the latest revision of a schema, or the one after the @ of the name.
    pub fn get_schema(&mut self, _now: Time, request: pubsub::GetSchemaRequest) -> Answer<pubsub::Schema> {
        let (schema, revision) = self.schema_revision(&request.name)?;
        let view = if request.view() == SchemaView::Basic { SchemaView::Basic } else { SchemaView::Full };
        Ok(schema.shown(revision, view))
    }

    /// Lists the latest revisions of a project's schemas, one page at a time.
    pub fn list_schemas(
        &mut self,
        _now: Time,
        request: pubsub::ListSchemasRequest,
    ) -> Answer<pubsub::ListSchemasResponse> {
        let prefix = Kind::Schema.prefix(names::project(&request.parent)?);
        let page = Page::of(&prefix, request.page_size, &request.page_token)?;
        let schemas = self.schemas.range::<str, _>(page.range(&prefix));
        let schemas = schemas.take_while(|(name, _)| name.starts_with(&prefix));
        let view = request.view();
        let shown = schemas.filter_map(|(name, schema)| {
            let latest = schema.latest().ok()?;
            Some((name, schema.shown(latest, view)))
        });
        let (schemas, next_page_token) = page.cut(shown);
        Ok(pubsub::ListSchemasResponse { schemas, next_page_token })
    }

    /// Deletes a schema with all its revisions. Its topics stay, and take no more messages.
    pub fn delete_schema(&mut self, _now: Time, request: pubsub::DeleteSchemaRequest) -> Answer<()> {
        let name = self.schema("name", &request.name)?.name.clone();
        if let Some(schema) = self.schemas.remove(&name) {
            schema.delete();
            self.policies.forget(&name);
            self.note_gone(&name);
            self.forget_schema(&name);
        }
        Ok(())
    }

    /// Finds a schema by name, after checking the name.
    pub(super) fn schema(&self, field: &str, name: &str) -> Answer<&Schema> {
        names::check(Kind::Schema, field, name)?;
        self.schemas.get(name).ok_or_else(|| Refusal::not_found(name))
    }

    /// Finds the revision that a name has after an @, or the latest one.
    fn schema_revision(&self, name: &str) -> Answer<(&Schema, &Revision)> {
        let (schema, revision) = split(name);
        let schema = self.schema("name", schema)?;
        let revision = match revision {
            Some(id) => schema.revision(id).ok_or_else(|| Refusal::not_found(name))?,
            None => schema.latest()?,
        };
        Ok((schema, revision))
    }

    fn schemas_of(&self, prefix: &str) -> impl Iterator<Item = &Schema> {
        let range: (Bound<&str>, Bound<&str>) = (Bound::Included(prefix), Bound::Unbounded);
        let schemas = self.schemas.range::<str, _>(range).map(|(_, schema)| schema);
        schemas.take_while(move |schema| schema.name.starts_with(prefix))
    }
}

/// The name of a schema, and the id of a revision that follows it after an @.
fn split(name: &str) -> (&str, Option<&str>) {
    match names::id_of(name).split_once('@') {
        Some((_, revision)) => (&name[..name.len() - revision.len() - 1], Some(revision)),
        None => (name, None),
    }
}

fn exhausted(words: String) -> Refusal {
    Refusal::new(Code::ResourceExhausted, words)
}

/// Eight hexadecimal digits that look random, for the revision with this number: the first ones of
/// splitmix64 that the schema does not have.
fn revision_id(number: u64, is_taken: impl Fn(&str) -> bool) -> Arc<str> {
    let mut state = number;
    loop {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let id = format!("{:08x}", mixed >> 32);
        if !is_taken(&id) {
            return id.into();
        }
    }
}
