//! Publishing: its limits, and the subscriptions that a message enters.

use std::sync::Arc;

use prost::Message as _;

use super::agenda::Entry;
use super::changes::Change;
use super::delivery::Fate;
use super::names::{self, Kind};
use super::schemas::{CheckedMessages, SchemaMark, TopicSchema};
use super::{Answer, Broker, Message, Refusal, Time, limits};
use crate::proto::pubsub;

/// What became of messages that were to be published.
pub(crate) enum Offered {
    Published(pubsub::PublishResponse),
    /// Nothing: they were not checked against this schema, which is that of the topic now.
    Unchecked(pubsub::PublishRequest, TopicSchema),
}

impl Broker {
    /// Publishes messages to all of the topic's subscriptions whose filters admit them.
    pub fn publish(&mut self, now: Time, request: pubsub::PublishRequest) -> Answer<pubsub::PublishResponse> {
        let marks = match self.topic_schema(&request)? {
            Some(schema) => schema.check(&request.messages)?.marks,
            None => Vec::new(),
        };
        Ok(self.publish_marked(now, request, marks))
    }

    /// The same without reading the messages: if the topic has a schema, they are published only if
    /// they were `checked` against it as it is now.
    pub(crate) fn publish_checked(
        &mut self,
        now: Time,
        request: pubsub::PublishRequest,
        checked: Option<&CheckedMessages>,
    ) -> Answer<Offered> {
        let marks = match (self.topic_schema(&request)?, checked) {
            (None, _) => Vec::new(),
            (Some(schema), Some(checked)) if checked.schema.is_same(&schema) => checked.marks.clone(),
            (Some(schema), Some(_) | None) => return Ok(Offered::Unchecked(request, schema)),
        };
        Ok(Offered::Published(self.publish_marked(now, request, marks)))
    }

    /// The schema of the topic of an acceptable request, if it has one.
    fn topic_schema(&self, request: &pubsub::PublishRequest) -> Answer<Option<TopicSchema>> {
        names::check(Kind::Topic, "topic", &request.topic)?;
        check(request)?;
        if !self.topics.contains_key(request.topic.as_str()) {
            return Err(Refusal::not_found(&request.topic));
        }
        self.schema_of(&request.topic)
    }

    fn publish_marked(
        &mut self,
        now: Time,
        request: pubsub::PublishRequest,
        marks: Vec<Arc<SchemaMark>>,
    ) -> pubsub::PublishResponse {
        let mut marks = marks.into_iter();
        let messages: Vec<Message> = request
            .messages
            .into_iter()
            .map(|message| Message {
                id: self.next_message(),
                published: now.in_whole_millis(),
                data: message.data,
                attributes: message.attributes,
                ordering_key: message.ordering_key,
                schema: marks.next(),
            })
            .collect();
        let message_ids = messages.iter().map(|message| message.id.to_string()).collect();
        self.fan_out(now, &request.topic, messages);
        pubsub::PublishResponse { message_ids }
    }

    /// Distributes messages to a topic's retention, snapshots and subscriptions. Drops them if the
    /// topic does not exist.
    pub(super) fn fan_out(&mut self, now: Time, topic: &str, messages: Vec<Message>) {
        let Some(topic) = self.topics.get_mut(topic) else { return };
        let messages: Vec<Arc<Message>> = messages.into_iter().map(Arc::new).collect();
        let kept = topic.retention.is_some();
        if kept || !topic.subscriptions.is_empty() || !topic.snapshots.is_empty() {
            self.ledger.note(|| Change::Published {
                topic: topic.name.clone(),
                kept,
                snapshots: topic.snapshots.iter().cloned().collect(),
                messages: messages.clone(),
            });
        }
        if let Some(due) = topic.keep(now, &messages) {
            self.agenda.no_later(Entry::Topic(topic.name.clone()), due);
        }
        for name in &topic.snapshots {
            if let Some(snapshot) = self.snapshots.get_mut(name) {
                messages.iter().for_each(|message| snapshot.contents.retain(message.clone()));
            }
        }
        for name in &topic.subscriptions {
            let Some(subscription) = self.subscriptions.get_mut(name) else { continue };
            let exactly_once = subscription.delivery.settings().exactly_once;
            for message in &messages {
                if !subscription.admits(message) {
                    continue;
                }
                let mut fate = self.faults.fate(&mut self.rng);
                if exactly_once && fate == Some(Fate::Twice) {
                    fate = Some(Fate::OnTime);
                }
                self.fault_counts.count(fate);
                if let Some(fate) = fate {
                    subscription.delivery.enqueue(now, message.clone(), fate);
                }
            }
            if subscription.delivery.deliverable() {
                self.woken.insert(name.clone());
                self.pushes.stir(name);
            }
            if let Some(due) = subscription.next_due() {
                self.agenda.no_later(Entry::Subscription(name.clone()), due);
            }
        }
    }

    pub(super) fn next_message(&mut self) -> u64 {
        self.last_message += 1;
        self.last_message
    }
}

/// Reserved keys that publishers may use nevertheless: the official clients' traces.
const TRACE_KEYS: [&str; 2] = ["googclient_traceparent", "googclient_tracestate"];

fn is_reserved(key: &str) -> bool {
    let reserved = key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("goog"));
    reserved && !TRACE_KEYS.contains(&key)
}

fn check(request: &pubsub::PublishRequest) -> Answer<()> {
    if request.messages.is_empty() {
        return Err(limits::too_small("message_count", 0, 1));
    }
    limits::at_most("message_count", request.messages.len(), limits::MOST_MESSAGES)?;
    limits::at_most("request_size", request.encoded_len(), limits::LARGEST_PUBLISH)?;
    let ordering_key = request.messages.first().map(|message| &message.ordering_key);
    for message in &request.messages {
        if Some(&message.ordering_key) != ordering_key {
            return Err(Refusal::invalid(
                "In a single publish request, all messages must have no ordering key or they must all have the same \
                 ordering key.",
            ));
        }
        check_message(message)?;
    }
    Ok(())
}

fn check_message(message: &pubsub::PubsubMessage) -> Answer<()> {
    if message.data.is_empty() && message.attributes.is_empty() {
        return Err(Refusal::invalid(
            "One or more messages in the publish request is empty. Each message must contain either non-empty data, \
             or at least one attribute.",
        ));
    }
    limits::at_most("ordering_key_size", message.ordering_key.len(), limits::LONGEST_ORDERING_KEY)?;
    limits::at_most("num_attributes", message.attributes.len(), limits::MOST_ATTRIBUTES)?;
    for (key, value) in &message.attributes {
        // Before the refusal that names it.
        limits::at_most("attribute_key_size", key.len(), limits::LONGEST_ATTRIBUTE_KEY)?;
        if key.is_empty() || is_reserved(key) {
            return Err(Refusal::invalid(format!(
                "The request contains an attribute key that is not valid (key={key}). Attribute keys must be \
                 non-empty and must not begin with 'goog' (case-insensitive)."
            )));
        }
        limits::at_most("attribute_value_size", value.len(), limits::LONGEST_ATTRIBUTE_VALUE)?;
    }
    Ok(())
}
