//! The revisions of schemas: list, commit, roll back, delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Code;

use super::definition::Definition;
use super::{Schema, exhausted, split};
use crate::broker::changes::Change;
use crate::broker::pages::Page;
use crate::broker::{Answer, Broker, Name, Refusal, Time, limits};
use crate::proto::pubsub::{self, SchemaView};

/// A revision to add, and the definition that it has to be compatible with. It needs no broker, so
/// that both can be read while that is not locked.
pub(crate) struct UnreadRevision {
    name: Name,
    wanted: pubsub::Schema,
    latest: Arc<Definition>,
}

/// A revision to add, which is compatible with that definition.
pub(crate) struct ReadRevision {
    name: Name,
    text: Arc<str>,
    definition: Arc<Definition>,
    latest: Arc<Definition>,
}

/// What became of a revision that was to be added.
pub(crate) enum Committed {
    Added(pubsub::Schema),
    /// Nothing: the schema has another latest revision than it was compared with, which is in it
    /// now.
    Uncompared(ReadRevision),
}

impl UnreadRevision {
    pub(crate) fn read(self) -> Answer<ReadRevision> {
        let Self { name, wanted, latest } = self;
        let definition = Arc::new(Definition::of(&wanted)?);
        ReadRevision { name, text: wanted.definition.into(), definition, latest }.compared()
    }
}

impl ReadRevision {
    pub(crate) fn compared(self) -> Answer<Self> {
        self.definition.check_revises(&self.latest)?;
        Ok(self)
    }
}

impl Broker {
    /// Lists the revisions of a schema, the latest first, one page at a time.
    pub fn list_schema_revisions(
        &mut self,
        _now: Time,
        request: pubsub::ListSchemaRevisionsRequest,
    ) -> Answer<pubsub::ListSchemaRevisionsResponse> {
        let schema = self.schema("name", &request.name)?;
        let list = format!("{}:revisions", schema.name);
        let page = Page::of(&list, request.page_size, &request.page_token)?;
        let view = request.view();
        // A page continues after a name, and names are listed in their order.
        let shown: BTreeMap<Name, pubsub::Schema> = schema
            .revisions
            .iter()
            .map(|revision| {
                let name = format!("{:020}", u64::MAX - revision.number);
                (name.into(), schema.shown(revision, view))
            })
            .collect();
        let shown = shown.range::<str, _>(page.range("")).map(|(name, schema)| (name, schema.clone()));
        let (schemas, next_page_token) = page.cut(shown);
        Ok(pubsub::ListSchemaRevisionsResponse { schemas, next_page_token })
    }

    /// Adds a revision to a schema.
    pub fn commit_schema(
        &mut self,
        now: Time,
        request: pubsub::CommitSchemaRequest,
    ) -> Answer<pubsub::Schema> {
        let revision = self.revision_to_read(request)?.read()?;
        self.commit_locked(now, revision)
    }

    /// What a commit has to read and to compare.
    pub(crate) fn revision_to_read(&self, request: pubsub::CommitSchemaRequest) -> Answer<UnreadRevision> {
        let schema = self.schema("name", &request.name)?;
        let latest = Arc::clone(&schema.latest()?.definition);
        Ok(UnreadRevision { name: schema.name.clone(), wanted: request.schema.unwrap_or_default(), latest })
    }

    /// Adds a revision that was read, unless the schema has another latest revision meanwhile.
    pub(crate) fn commit_read(&mut self, now: Time, revision: ReadRevision) -> Answer<Committed> {
        let latest = &self.schema("name", &revision.name)?.latest()?.definition;
        if !Arc::ptr_eq(latest, &revision.latest) {
            return Ok(Committed::Uncompared(ReadRevision { latest: Arc::clone(latest), ..revision }));
        }
        self.commit_compared(now, revision).map(Committed::Added)
    }

    /// Adds a revision that was read, whatever the latest one is now.
    pub(crate) fn commit_locked(&mut self, now: Time, revision: ReadRevision) -> Answer<pubsub::Schema> {
        match self.commit_read(now, revision)? {
            Committed::Added(schema) => Ok(schema),
            Committed::Uncompared(revision) => self.commit_compared(now, revision.compared()?),
        }
    }

    /// Adds a revision that was read. It must have been compared with the latest one.
    fn commit_compared(&mut self, now: Time, revision: ReadRevision) -> Answer<pubsub::Schema> {
        let ReadRevision { name, text, definition, .. } = revision;
        self.schema("name", &name)?.check_room()?;
        self.add_revision(now, &name, text, definition)
    }

    /// Adds a revision that is a copy of an earlier one.
    pub fn rollback_schema(
        &mut self,
        now: Time,
        request: pubsub::RollbackSchemaRequest,
    ) -> Answer<pubsub::Schema> {
        let schema = self.schema("name", &request.name)?;
        let name = schema.name.clone();
        if request.revision_id.is_empty() {
            return Err(limits::bad_argument("revision_id"));
        }
        let known = schema.revision(&request.revision_id);
        let earlier = known.ok_or_else(|| no_revision(&name, &request.revision_id))?;
        let (text, definition) = (Arc::clone(&earlier.text), Arc::clone(&earlier.definition));
        schema.check_room()?;
        self.add_revision(now, &name, text, definition)
    }

    /// Deletes a revision, unless it is the only one. Topics that begin or end with it use the next
    /// ones in their range.
    pub fn delete_schema_revision(
        &mut self,
        _now: Time,
        request: pubsub::DeleteSchemaRevisionRequest,
    ) -> Answer<pubsub::Schema> {
        let (name, revision) = split(&request.name);
        // The field of the request is deprecated, and still understood.
        #[allow(deprecated, reason = "clients may send it")]
        let id = revision.unwrap_or(&request.revision_id);
        if id.is_empty() {
            return Err(limits::bad_argument("name: the id of a revision has to follow after an @"));
        }
        let name = self.schema("name", name)?.name.clone();
        let schema = self.schemas.get_mut(&name).ok_or_else(|| Refusal::not_found(&name))?;
        let at = schema.revisions.iter().position(|revision| *revision.id == *id);
        let at = at.ok_or_else(|| no_revision(&name, id))?;
        if schema.revisions.len() == 1 {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                format!("The only revision of a schema can't be deleted (revision={id}): delete the schema."),
            ));
        }
        let revision = schema.revisions.remove(at);
        revision.marks.delete();
        self.ledger.note(|| Change::RevisionGone { schema: name.clone(), number: revision.number });
        Ok(schema.shown(&revision, SchemaView::Full))
    }

    fn add_revision(
        &mut self,
        now: Time,
        name: &Name,
        text: Arc<str>,
        definition: Arc<Definition>,
    ) -> Answer<pubsub::Schema> {
        let number = self.next_resource();
        let schema = self.schemas.get_mut(name).ok_or_else(|| Refusal::not_found(name))?;
        schema.add(now, number, text, definition);
        let latest = schema.latest()?;
        self.ledger.note(|| schema.change(latest));
        Ok(schema.shown(latest, SchemaView::Full))
    }
}

impl Schema {
    /// Refuses a revision beyond the limit.
    fn check_room(&self) -> Answer<()> {
        let present = self.revisions.len();
        if present >= limits::MOST_REVISIONS {
            let words = format!("The schema has {present} revisions, which is the limit: delete some first.");
            return Err(exhausted(words));
        }
        Ok(())
    }
}

/// The refusal of a revision that a schema does not have.
pub(super) fn no_revision(schema: &str, id: &str) -> Refusal {
    Refusal::not_found(&format!("{schema}@{id}"))
}
