//! What schemas are to topics: which revisions a topic takes, and whether its messages fit one of
//! them.

use std::sync::Arc;

use tonic::Code;

use super::revisions::no_revision;
use super::validation::misfit;
use super::{DELETED_SCHEMA, Schema, SchemaMark};
use crate::broker::{Answer, Broker, Refusal, limits};
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

    /// The marks of messages that a topic is to take, each of which fits a revision; none if the
    /// topic has no schema.
    pub(in crate::broker) fn schema_marks(
        &self,
        topic: &str,
        messages: &[PubsubMessage],
    ) -> Answer<Vec<Arc<SchemaMark>>> {
        let Some(topic) = self.topics.get(topic) else { return Ok(Vec::new()) };
        let Some(settings) = &topic.config.schema_settings else { return Ok(Vec::new()) };
        let Some(schema) = self.schemas.get(settings.schema.as_str()) else {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                format!("The schema of the topic was deleted (schema={}).", settings.schema),
            ));
        };
        let (range, encoding) = (topic.revisions, settings.encoding());
        messages.iter().map(|message| schema.fitting(range, encoding, &message.data)).collect()
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

    /// The mark of the latest revision in the range that a message fits.
    fn fitting(&self, range: RevisionRange, encoding: Encoding, data: &[u8]) -> Answer<Arc<SchemaMark>> {
        let mut refusal = None;
        for revision in self.revisions.iter().rev().filter(|revision| range.holds(revision.number)) {
            match revision.definition.check(encoding, data) {
                Ok(()) => return Ok(revision.marks.of(encoding)),
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
            self.name, revision.id
        );
        Err(misfit(&revision.definition, encoding, "revisionInfo", words))
    }
}
