//! Topics: create, get, list, update, delete; and the messages that they retain.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::agenda::Entry;
use super::changes::Change;
use super::mask::{self, Fields};
use super::names::{self, Kind};
use super::pages::Page;
use super::saved::SavedTopic;
use super::{Answer, Broker, Message, Name, Refusal, RevisionRange, Time, limits, unsupported};
use crate::proto::pubsub;

const FIELDS: Fields = Fields {
    resource: "Topic",
    example: ("schema_settings", "schemaSettings"),
    mutable: &[
        "labels",
        "message_storage_policy",
        "message_storage_policy.allowed_persistence_regions",
        "message_storage_policy.enforce_in_transit",
        "kms_key_name",
        "schema_settings",
        "schema_settings.schema",
        "schema_settings.encoding",
        "schema_settings.first_revision_id",
        "schema_settings.last_revision_id",
        "message_retention_duration",
        "ingestion_data_source_settings",
        "message_transforms",
    ],
    immutable: &["name", "satisfies_pzs", "state", "tags"],
};

/// A topic and the resources that refer to it.
pub(super) struct Topic {
    pub(super) name: Name,
    /// Distinguishes it from a deleted one of the same name.
    pub(super) number: u64,
    pub(super) config: pubsub::Topic,
    /// The subscriptions that it feeds.
    pub(super) subscriptions: BTreeSet<Name>,
    /// The subscriptions that it fed until they were detached.
    pub(super) detached: BTreeSet<Name>,
    pub(super) snapshots: BTreeSet<Name>,
    /// How long it retains messages itself.
    pub(super) retention: Option<Duration>,
    /// The revisions of its schema that it takes.
    pub(super) revisions: RevisionRange,
    /// The retained messages, in the order of publication.
    kept: VecDeque<Arc<Message>>,
}

impl Topic {
    /// What is noted of it.
    pub(super) fn change(&self) -> Change {
        Change::Topic {
            number: self.number,
            first_kept: self.kept.front().map_or(u64::MAX, |message| message.id),
            revisions: self.revisions,
            config: Box::new(self.config.clone()),
        }
    }

    /// Retains messages if it has a retention. Returns when the oldest retained message expires, if
    /// there is one.
    pub(super) fn keep(&mut self, now: Time, messages: &[Arc<Message>]) -> Option<Time> {
        if self.retention.is_some() {
            self.kept.extend(messages.iter().cloned());
        }
        self.prune(now)
    }

    /// Drops expired messages, and returns when the next one expires.
    pub(super) fn prune(&mut self, now: Time) -> Option<Time> {
        let Some(retention) = self.retention else {
            self.kept.clear();
            return None;
        };
        while let Some(oldest) = self.kept.front() {
            let ends = oldest.published + retention;
            if ends > now {
                return Some(ends);
            }
            self.kept.pop_front();
        }
        None
    }

    /// The retained messages from a time on.
    pub(super) fn kept_since(&self, time: Time) -> impl Iterator<Item = &Arc<Message>> {
        let first = self.kept.partition_point(|message| message.published < time);
        self.kept.range(first..)
    }

    /// The retained messages after the one with this id.
    pub(super) fn kept_after(&self, id: u64) -> impl Iterator<Item = &Arc<Message>> {
        let first = self.kept.partition_point(|message| message.id <= id);
        self.kept.range(first..)
    }

    /// How many messages it retains.
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }
}

impl Broker {
    /// Creates a topic.
    pub fn create_topic(&mut self, _now: Time, request: pubsub::Topic) -> Answer<pubsub::Topic> {
        let name = names::own(Kind::Topic, "name", &request.name)?;
        let mut config =
            pubsub::Topic { state: pubsub::topic::State::Active.into(), satisfies_pzs: false, ..request };
        let retention = complete(&mut config, self.accepts_unsupported)?;
        if self.topics.contains_key(&name) {
            return Err(Refusal::already_exists(&name));
        }
        let settings = config.schema_settings.as_ref();
        let revisions = settings.map(|settings| self.revision_range(settings, None)).transpose()?;
        self.note_unsupported(&name, &[], &unsupported::of_topic(&config));
        let topic = Topic {
            name: name.clone(),
            number: self.next_resource(),
            config: config.clone(),
            subscriptions: BTreeSet::new(),
            detached: BTreeSet::new(),
            snapshots: BTreeSet::new(),
            retention,
            revisions: revisions.unwrap_or_default(),
            kept: VecDeque::new(),
        };
        self.topics.insert(name.clone(), topic);
        self.note_topic(&name);
        Ok(config)
    }

    /// Returns a topic's configuration.
    pub fn get_topic(&mut self, _now: Time, request: pubsub::GetTopicRequest) -> Answer<pubsub::Topic> {
        self.topic("topic", &request.topic).map(|topic| topic.config.clone())
    }

    /// Changes the fields of a topic that the mask names.
    pub fn update_topic(&mut self, now: Time, request: pubsub::UpdateTopicRequest) -> Answer<pubsub::Topic> {
        let Some(update) = request.topic else {
            return Err(Refusal::invalid("The topic in the UpdateTopicRequest must be set."));
        };
        let paths = FIELDS.paths(request.update_mask.as_ref())?;
        let current = self.topic("topic.name", &update.name)?;
        let (name, mut config) = (current.name.clone(), current.config.clone());
        let mut revisions = current.revisions;
        let before = unsupported::of_topic(&config);
        for path in paths {
            apply(&mut config, &update, path)?;
        }
        if paths.iter().any(|path| path.starts_with("schema_settings")) {
            revisions = self.changed_revisions(&name, config.schema_settings.as_ref())?;
        }
        let retention = complete(&mut config, self.accepts_unsupported)?;
        self.note_unsupported(&name, &before, &unsupported::of_topic(&config));
        if let Some(topic) = self.topics.get_mut(&name) {
            topic.revisions = revisions;
        }
        self.configure_topic(now, &name, config.clone(), retention);
        Ok(config)
    }

    /// Lists a project's topics, one page at a time.
    pub fn list_topics(
        &mut self,
        _now: Time,
        request: pubsub::ListTopicsRequest,
    ) -> Answer<pubsub::ListTopicsResponse> {
        let prefix = Kind::Topic.prefix(names::project(&request.project)?);
        let page = Page::of(&prefix, request.page_size, &request.page_token)?;
        let topics = self.topics.range::<str, _>(page.range(&prefix));
        let topics = topics.take_while(|(name, _)| name.starts_with(&prefix));
        let (topics, next_page_token) = page.cut(topics.map(|(name, topic)| (name, topic.config.clone())));
        Ok(pubsub::ListTopicsResponse { topics, next_page_token })
    }

    /// Lists the names of the subscriptions that a topic feeds, one page at a time.
    pub fn list_topic_subscriptions(
        &mut self,
        _now: Time,
        request: pubsub::ListTopicSubscriptionsRequest,
    ) -> Answer<pubsub::ListTopicSubscriptionsResponse> {
        let topic = self.topic("topic", &request.topic)?;
        let (subscriptions, next_page_token) = names_of(
            &topic.subscriptions,
            &format!("{}:subscriptions", topic.name),
            request.page_size,
            &request.page_token,
        )?;
        Ok(pubsub::ListTopicSubscriptionsResponse { subscriptions, next_page_token })
    }

    /// Lists the names of a topic's snapshots, one page at a time.
    pub fn list_topic_snapshots(
        &mut self,
        _now: Time,
        request: pubsub::ListTopicSnapshotsRequest,
    ) -> Answer<pubsub::ListTopicSnapshotsResponse> {
        let topic = self.topic("topic", &request.topic)?;
        let (snapshots, next_page_token) = names_of(
            &topic.snapshots,
            &format!("{}:snapshots", topic.name),
            request.page_size,
            &request.page_token,
        )?;
        Ok(pubsub::ListTopicSnapshotsResponse { snapshots, next_page_token })
    }

    /// Deletes a topic. Its subscriptions and snapshots stay.
    pub fn delete_topic(&mut self, now: Time, request: pubsub::DeleteTopicRequest) -> Answer<()> {
        let name = self.topic("topic", &request.topic)?.name.clone();
        if let Some(topic) = self.topics.remove(&name) {
            self.agenda.forget(Entry::Topic(name.clone()));
            self.policies.forget(&name);
            self.note_gone(&name);
            self.forget_topic(now, &name, &topic);
        }
        Ok(())
    }

    /// The revisions that new settings of a topic name.
    fn changed_revisions(
        &self,
        name: &str,
        settings: Option<&pubsub::SchemaSettings>,
    ) -> Answer<RevisionRange> {
        let Some(settings) = settings else { return Ok(RevisionRange::default()) };
        let topic = self.topics.get(name);
        let before = topic.and_then(|topic| Some((topic.config.schema_settings.as_ref()?, topic.revisions)));
        self.revision_range(settings, before)
    }

    /// Changes a topic, and the settings that its subscriptions inherit.
    fn configure_topic(
        &mut self,
        now: Time,
        name: &Name,
        config: pubsub::Topic,
        retention: Option<Duration>,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        topic.config = config;
        if topic.retention == retention {
            self.note_topic(name);
            return;
        }
        topic.retention = retention;
        let due = topic.prune(now);
        self.ledger.note(|| topic.change());
        let subscriptions: Vec<Name> = topic.subscriptions.iter().cloned().collect();
        if let Some(due) = due {
            self.agenda.no_later(Entry::Topic(name.clone()), due);
        }
        for name in subscriptions {
            if let Some(subscription) = self.subscriptions.get_mut(&name) {
                subscription.config.topic_message_retention_duration = retention.map(limits::proto_duration);
                subscription.configure(now);
            }
            self.note_subscription(&name);
            self.reschedule(now, &name);
        }
    }

    /// Takes over a topic; its subscriptions and snapshots come after it.
    pub(super) fn load_topic(&mut self, now: Time, name: Name, saved: SavedTopic) {
        let SavedTopic { number, revisions, config, kept } = saved;
        let mut topic = Topic {
            name: name.clone(),
            number,
            subscriptions: BTreeSet::new(),
            detached: BTreeSet::new(),
            snapshots: BTreeSet::new(),
            retention: config.message_retention_duration.as_ref().and_then(limits::std_duration),
            revisions,
            config,
            kept,
        };
        if let Some(due) = topic.prune(now) {
            self.agenda.no_later(Entry::Topic(name.clone()), due);
        }
        self.note_unsupported(&name, &[], &unsupported::of_topic(&topic.config));
        self.topics.insert(name, topic);
    }
}

/// Refuses a topic that the service would refuse or that is not supported here, and fills in what
/// the service does; returns how long the topic retains messages.
fn complete(topic: &mut pubsub::Topic, accepts_unsupported: bool) -> Answer<Option<Duration>> {
    limits::check_labels(&topic.labels)?;
    unsupported::complete_topic(topic, accepts_unsupported)?;
    let policy = topic.message_storage_policy.as_ref();
    if policy.is_some_and(|policy| policy.allowed_persistence_regions.is_empty()) {
        return Err(limits::bad_argument("message_storage_policy.allowed_persistence_regions"));
    }
    let retention = topic.message_retention_duration.as_ref();
    retention
        .map(|retention| {
            let (shortest, longest) = (limits::SHORTEST_RETENTION, limits::LONGEST_RETENTION);
            limits::duration("message retention duration", retention, shortest, longest)
        })
        .transpose()
}

fn apply(config: &mut pubsub::Topic, update: &pubsub::Topic, path: &str) -> Answer<()> {
    match path {
        "labels" => config.labels.clone_from(&update.labels),
        "message_storage_policy" => config.message_storage_policy.clone_from(&update.message_storage_policy),
        "message_storage_policy.allowed_persistence_regions"
        | "message_storage_policy.enforce_in_transit" => apply_storage(config, update, path),
        "kms_key_name" => config.kms_key_name.clone_from(&update.kms_key_name),
        "schema_settings" => config.schema_settings.clone_from(&update.schema_settings),
        "schema_settings.schema"
        | "schema_settings.encoding"
        | "schema_settings.first_revision_id"
        | "schema_settings.last_revision_id" => apply_schema(config, update, path),
        "message_retention_duration" => config.message_retention_duration = update.message_retention_duration,
        "ingestion_data_source_settings" => {
            config.ingestion_data_source_settings.clone_from(&update.ingestion_data_source_settings);
        }
        "message_transforms" => config.message_transforms.clone_from(&update.message_transforms),
        other => return Err(mask::unapplied(other)),
    }
    Ok(())
}

/// Takes one part of the storage policy; one without any content is none.
fn apply_storage(config: &mut pubsub::Topic, update: &pubsub::Topic, path: &str) {
    let new = update.message_storage_policy.clone().unwrap_or_default();
    let policy = config.message_storage_policy.get_or_insert_default();
    if path.ends_with(".enforce_in_transit") {
        policy.enforce_in_transit = new.enforce_in_transit;
    } else {
        policy.allowed_persistence_regions = new.allowed_persistence_regions;
    }
    config.message_storage_policy.take_if(|policy| *policy == pubsub::MessageStoragePolicy::default());
}

/// Takes one part of the schema settings; those without any content are none.
fn apply_schema(config: &mut pubsub::Topic, update: &pubsub::Topic, path: &str) {
    let new = update.schema_settings.clone().unwrap_or_default();
    let settings = config.schema_settings.get_or_insert_default();
    match path {
        "schema_settings.schema" => settings.schema = new.schema,
        "schema_settings.encoding" => settings.encoding = new.encoding,
        "schema_settings.first_revision_id" => settings.first_revision_id = new.first_revision_id,
        _ => settings.last_revision_id = new.last_revision_id,
    }
    config.schema_settings.take_if(|settings| *settings == pubsub::SchemaSettings::default());
}

fn names_of(set: &BTreeSet<Name>, list: &str, size: i32, token: &str) -> Answer<(Vec<String>, String)> {
    let page = Page::of(list, size, token)?;
    Ok(page.cut(set.range::<str, _>(page.range("")).map(|name| (name, name.to_string()))))
}
