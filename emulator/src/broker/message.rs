//! A published message: shared by all its subscriptions, never copied.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{SchemaMark, Time};
use crate::proto::pubsub::PubsubMessage;

/// A published message, as the broker keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Unique in the broker, and increasing; in decimal, it is the `message_id`.
    pub id: u64,
    /// When it was published, in whole milliseconds, as the service says it.
    pub published: Time,
    /// The body.
    pub data: Bytes,
    /// The attributes that it was published with, by key.
    pub attributes: BTreeMap<String, String>,
    /// The ordering key; empty if there is none.
    pub ordering_key: String,
    /// What it was validated against, if its topic has a schema.
    pub schema: Option<Arc<SchemaMark>>,
}

impl Message {
    /// The size in bytes that counts for limits and flow control: data, attributes and ordering
    /// key.
    pub fn size(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.data.len() + attributes + self.ordering_key.len()
    }

    /// The attributes that it is delivered with: its own, and those that name a schema.
    pub fn delivered_attributes(&self) -> Cow<'_, BTreeMap<String, String>> {
        let Some(schema) = &self.schema else { return Cow::Borrowed(&self.attributes) };
        let mut attributes = self.attributes.clone();
        schema.write(&mut attributes);
        Cow::Owned(attributes)
    }

    /// The message in the form in which it is delivered.
    pub fn to_proto(&self) -> PubsubMessage {
        PubsubMessage {
            data: self.data.clone(),
            attributes: self.delivered_attributes().into_owned(),
            message_id: self.id.to_string(),
            publish_time: Some(self.published.timestamp()),
            ordering_key: self.ordering_key.clone(),
        }
    }
}
