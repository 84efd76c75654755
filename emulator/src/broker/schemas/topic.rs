//! What schemas are to topics: which revisions a topic takes, and whether its messages fit one of
//! them.

use std::sync::Arc;

use tonic::Code;

use super::definition::Definition;
use super::revisions::no_revision;
use super::validation::misfit;
use super::{DELETED_SCHEMA, Schema, SchemaMark};
use crate::broker::{Answer, Broker, Name, Refusal, limits};
use crate::proto::pubsub::{Encoding, PubsubMessage, SchemaSettings};

/// The numbers of the first and the last revision that a topic takes, and no bound where there is
/// none. They keep their places in the order of the revisions when these are deleted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct RevisionRange {
    pub(crate) first: Option<u64>,
    pub(crate) last: Option<u64>,
}

impl RevisionRange {
    fn holds(self, number: u64) -> bool {
        self.first.is_none_or(|first| first <= number) && self.last.is_none_or(|last| number <= last)
    }
}

/// What the messages of a topic have to fit: its schema as it was at one time. It needs no broker,
/// so that messages can be read while that is not locked.
pub(crate) struct TopicSchema {
    name: Name,
    encoding: Encoding,
    /// Those that the topic takes, the latest first.
    revisions: Vec<TopicRevision>,
}

struct TopicRevision {
    definition: Arc<Definition>,
    mark: Arc<SchemaMark>,
}

/// Messages that fit a schema.
pub(crate) struct CheckedMessages {
    pub(in crate::broker) schema: TopicSchema,
    /// Of each message in its order.
    pub(in crate::broker) marks: Vec<Arc<SchemaMark>>,
}

impl Broker {
    /// The revisions that these settings name. A deleted one may still be named where the topic
    /// named it `before`.
    pub(in crate::broker) fn revision_range(
        &self,
        settings: &SchemaSettings,
        before: Option<(&SchemaSettings, RevisionRange)>,
    ) -> Answer<RevisionRange> {
        let schema = self.schema("schema_settings.schema", &settings.schema)?;
        if settings.encoding() == Encoding::Unspecified {
            return Err(limits::bad_argument("schema_settings.encoding"));
        }
        let before = before.filter(|(before, _)| before.schema == settings.schema);
        let known = before.map(|(before, range)| (before.first_revision_id.as_str(), range.first));
        let first = schema.bound(&settings.first_revision_id, known)?;
        let known = before.map(|(before, range)| (before.last_revision_id.as_str(), range.last));
        let last = schema.bound(&settings.last_revision_id, known)?;
        if first.is_some_and(|first| last.is_some_and(|last| last < first)) {
            return Err(limits::bad_argument(
                "schema_settings: the first revision is later than the last revision",
            ));
        }
        Ok(RevisionRange { first, last })
    }

    /// The schema of a topic as it is now, if it has one.
    pub(in crate::broker) fn schema_of(&self, topic: &str) -> Answer<Option<TopicSchema>> {
        let Some(topic) = self.topics.get(topic) else { return Ok(None) };
        let Some(settings) = &topic.config.schema_settings else { return Ok(None) };
        let Some(schema) = self.schemas.get(settings.schema.as_str()) else {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                format!("The schema of the topic was deleted (schema={}).", settings.schema),
            ));
        };
        Ok(Some(schema.of_topic(topic.revisions, settings.encoding())))
    }

    /// Marks the topics of a deleted schema.
    pub(super) fn forget_schema(&mut self, name: &str) {
        for topic in self.topics.values_mut() {
            if let Some(settings) = &mut topic.config.schema_settings
                && settings.schema == name
            {
                settings.schema = DELETED_SCHEMA.to_owned();
                self.ledger.note(|| topic.change());
            }
        }
    }
}

impl Schema {
    fn bound(&self, id: &str, before: Option<(&str, Option<u64>)>) -> Answer<Option<u64>> {
        if id.is_empty() {
            return Ok(None);
        }
        if let Some(revision) = self.revision(id) {
            return Ok(Some(revision.number));
        }
        match before {
            Some((known, number)) if known == id => Ok(number),
            Some(_) | None => Err(no_revision(&self.name, id)),
        }
    }

    fn of_topic(&self, range: RevisionRange, encoding: Encoding) -> TopicSchema {
        let revisions = self.revisions.iter().rev().filter(|revision| range.holds(revision.number));
        let revisions = revisions.map(|revision| TopicRevision {
            definition: Arc::clone(&revision.definition),
            mark: revision.marks.of(encoding),
        });
        TopicSchema { name: self.name.clone(), encoding, revisions: revisions.collect() }
    }
}

impl TopicSchema {
    /// Reads messages. Each has to fit a revision.
    pub(crate) fn check(self, messages: &[PubsubMessage]) -> Answer<CheckedMessages> {
        let marks = messages.iter().map(|message| self.fitting(&message.data)).collect::<Answer<_>>()?;
        Ok(CheckedMessages { schema: self, marks })
    }

    /// Whether messages fit the one as they do the other: each mark is that of one revision in one
    /// encoding.
    pub(in crate::broker) fn is_same(&self, other: &Self) -> bool {
        let marks = |schema: &Self| -> Vec<*const SchemaMark> {
            schema.revisions.iter().map(|revision| Arc::as_ptr(&revision.mark)).collect()
        };
        marks(self) == marks(other)
    }

    /// The mark of the latest revision that a message fits.
    fn fitting(&self, data: &[u8]) -> Answer<Arc<SchemaMark>> {
        let mut refusal = None;
        for revision in &self.revisions {
            match revision.definition.check(self.encoding, data) {
                Ok(()) => return Ok(Arc::clone(&revision.mark)),
                Err(why) => refusal = Some((revision, why)),
            }
        }
        let Some((revision, why)) = refusal else {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                format!(
                    "No revision of the schema is left in the range of the topic (schema={}).",
                    self.name
                ),
            ));
        };
        // The service's words.
        let words = format!(
            "Could not validate message with any schema revision for schema: {}, last checked revision: \
             revision_id={} failed with status: {why}.",
            self.name, revision.mark.revision
        );
        Err(misfit(&revision.definition, self.encoding, "revisionInfo", words))
    }
}
