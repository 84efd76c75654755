//! Snapshots: create, get, list, update, delete; and seeking, to a snapshot or to a time.
//!
//! What a snapshot contains, and what seeking does to messages, is decided in `delivery`.

use super::agenda::Entry;
use super::attend::snapshot_expiry;
use super::changes::Change;
use super::delivery::Contents;
use super::limits::{self, LONGEST_SNAPSHOT, SHORTEST_SNAPSHOT};
use super::mask::{self, Fields};
use super::names::{self, Kind};
use super::pages::Page;
use super::saved::{self, SavedSnapshot};
use super::subscriptions::Subscription;
use super::{Answer, Broker, Name, Refusal, Time};
use crate::proto::pubsub;
use crate::proto::pubsub::seek_request::Target;

const FIELDS: Fields = Fields {
    resource: "Snapshot",
    example: ("expire_time", "expireTime"),
    mutable: &["labels", "expire_time"],
    immutable: &["name", "topic"],
};

/// A subscription's unacknowledged messages at some time, and everything published since.
pub(super) struct Snapshot {
    pub(super) name: Name,
    /// The number of its topic, which may have been deleted.
    pub(super) topic: u64,
    pub(super) config: pubsub::Snapshot,
    pub(super) contents: Contents,
    pub(super) expires: Time,
    made: Time,
}

impl Snapshot {
    /// What is noted of it.
    pub(super) fn change(&self) -> Change {
        Change::Snapshot { topic: self.topic, made: self.made, config: Box::new(self.config.clone()) }
    }

    /// What is noted of its messages.
    pub(super) fn contents_change(&self) -> Change {
        Change::Contents { snapshot: self.name.clone(), messages: saved::ids(self.contents.messages()) }
    }
}

impl Broker {
    /// Creates a snapshot: it keeps a subscription's unacknowledged messages, and what its topic
    /// publishes from now on.
    pub fn create_snapshot(
        &mut self,
        now: Time,
        request: pubsub::CreateSnapshotRequest,
    ) -> Answer<pubsub::Snapshot> {
        if !request.name.is_empty() {
            names::check(Kind::Snapshot, "name", &request.name)?;
        }
        limits::check_labels(&request.labels)?;
        if !request.tags.is_empty() {
            return Err(Refusal::unsupported(
                "This emulator does not support CreateSnapshotRequest.tags: there is no resource manager to bind them \
                 to.",
            ));
        }
        let subscription = self.subscription("subscription", &request.subscription)?;
        check_attached(subscription)?;
        if self.snapshots.contains_key(request.name.as_str()) {
            return Err(Refusal::already_exists(&request.name));
        }
        let contents = subscription.delivery.snapshot(now);
        let expires = snapshot_expiry(now, contents.oldest());
        if expires < now + SHORTEST_SNAPSHOT {
            return Err(Refusal::new(
                tonic::Code::FailedPrecondition,
                "The backlog in the subscription is too old: the snapshot would expire in less than 1 hour.",
            ));
        }
        let (topic, config_topic) = (subscription.topic, subscription.config.topic.clone());
        let name = match request.name {
            name if name.is_empty() => self.free_name(Kind::Snapshot, &request.subscription),
            name => name,
        };
        let config = pubsub::Snapshot {
            name: name.clone(),
            topic: config_topic.clone(),
            expire_time: Some(expires.timestamp()),
            labels: request.labels,
        };
        let name: Name = name.into();
        if let Some(topic) = self.topics.get_mut(config_topic.as_str()) {
            limits::room_for("snapshots", topic.snapshots.len(), limits::MOST_SNAPSHOTS_OF_A_TOPIC)?;
            topic.snapshots.insert(name.clone());
        }
        let snapshot =
            Snapshot { name: name.clone(), topic, config: config.clone(), contents, expires, made: now };
        self.agenda.no_later(Entry::Snapshot(name.clone()), expires);
        self.ledger.note(|| snapshot.change());
        self.ledger.note(|| snapshot.contents_change());
        self.snapshots.insert(name, snapshot);
        self.touch(now, &request.subscription);
        Ok(config)
    }

    /// Returns a snapshot's configuration.
    pub fn get_snapshot(
        &mut self,
        _now: Time,
        request: pubsub::GetSnapshotRequest,
    ) -> Answer<pubsub::Snapshot> {
        self.snapshot("snapshot", &request.snapshot).map(|snapshot| snapshot.config.clone())
    }

    /// Lists a project's snapshots, one page at a time.
    pub fn list_snapshots(
        &mut self,
        _now: Time,
        request: pubsub::ListSnapshotsRequest,
    ) -> Answer<pubsub::ListSnapshotsResponse> {
        let prefix = Kind::Snapshot.prefix(names::project(&request.project)?);
        let page = Page::of(&prefix, request.page_size, &request.page_token)?;
        let found = self.snapshots.range::<str, _>(page.range(&prefix));
        let found = found.take_while(|(name, _)| name.starts_with(&prefix));
        let (snapshots, next_page_token) =
            page.cut(found.map(|(name, snapshot)| (name, snapshot.config.clone())));
        Ok(pubsub::ListSnapshotsResponse { snapshots, next_page_token })
    }

    /// Changes the fields of a snapshot that the mask names.
    pub fn update_snapshot(
        &mut self,
        now: Time,
        request: pubsub::UpdateSnapshotRequest,
    ) -> Answer<pubsub::Snapshot> {
        let Some(update) = request.snapshot else {
            return Err(Refusal::invalid("The snapshot in the UpdateSnapshotRequest must be set."));
        };
        let paths = FIELDS.paths(request.update_mask.as_ref())?;
        let current = self.snapshot("snapshot.name", &update.name)?;
        let name = current.name.clone();
        let (mut config, mut expires) = (current.config.clone(), current.expires);
        for path in paths {
            match path.as_str() {
                "labels" => {
                    limits::check_labels(&update.labels)?;
                    config.labels.clone_from(&update.labels);
                }
                "expire_time" => {
                    expires = expiry(now, current, &update)?;
                    config.expire_time = Some(expires.timestamp());
                }
                other => return Err(mask::unapplied(other)),
            }
        }
        if let Some(snapshot) = self.snapshots.get_mut(&name) {
            snapshot.config = config.clone();
            snapshot.expires = expires;
            self.agenda.no_later(Entry::Snapshot(name.clone()), expires);
            self.note_snapshot(&name);
        }
        Ok(config)
    }

    /// Deletes a snapshot and its messages.
    pub fn delete_snapshot(&mut self, _now: Time, request: pubsub::DeleteSnapshotRequest) -> Answer<()> {
        let name = self.snapshot("snapshot", &request.snapshot)?.name.clone();
        self.remove_snapshot(&name);
        Ok(())
    }

    /// Seeks a subscription to a time or a snapshot: resets which of its messages are acknowledged.
    pub fn seek(&mut self, now: Time, request: pubsub::SeekRequest) -> Answer<pubsub::SeekResponse> {
        let subscription = self.subscription("subscription", &request.subscription)?;
        check_attached(subscription)?;
        let name = subscription.name.clone();
        match request.target {
            None => {
                return Err(Refusal::invalid(
                    "No target was specified in the SeekRequest. Must specify either a time or a snapshot",
                ));
            }
            Some(Target::Time(time)) => {
                let malformed = || limits::bad_argument("time");
                // A time before the epoch is before every message.
                let time = if time.seconds < 0 { Some(Time::default()) } else { Time::from_timestamp(&time) };
                self.seek_to_time(now, &name, time.ok_or_else(malformed)?);
            }
            Some(Target::Snapshot(snapshot)) => self.seek_to_snapshot(now, &name, &snapshot)?,
        }
        self.touch(now, &name);
        self.wake(&name);
        self.reschedule(now, &name);
        Ok(pubsub::SeekResponse {})
    }

    /// Forgets a snapshot that was deleted or has expired.
    pub(super) fn remove_snapshot(&mut self, name: &Name) {
        let Some(snapshot) = self.snapshots.remove(name) else { return };
        if let Some(topic) = self.topics.get_mut(snapshot.config.topic.as_str()) {
            topic.snapshots.remove(name);
        }
        self.agenda.forget(Entry::Snapshot(name.clone()));
        self.policies.forget(name);
        self.note_gone(name);
    }

    /// Takes over a snapshot, after its topic.
    pub(super) fn load_snapshot(&mut self, name: Name, saved: SavedSnapshot) {
        let SavedSnapshot { topic, made, config, contents } = saved;
        let expires = config.expire_time.as_ref().and_then(Time::from_timestamp).unwrap_or(made);
        if let Some(topic) = self.topics.get_mut(config.topic.as_str()) {
            topic.snapshots.insert(name.clone());
        }
        self.agenda.no_later(Entry::Snapshot(name.clone()), expires);
        let contents = Contents::new(contents);
        self.snapshots.insert(name.clone(), Snapshot { name, topic, config, contents, expires, made });
    }

    /// Also restores what the topic still retains, for a subscription that did not exist yet or has
    /// dropped it.
    fn seek_to_time(&mut self, now: Time, name: &Name, time: Time) {
        let Some(subscription) = self.subscriptions.get(name) else { return };
        let kept = self.feeding(subscription).into_iter().flat_map(|topic| topic.kept_since(time));
        let restored: Vec<_> = kept.filter(|message| subscription.admits(message)).cloned().collect();
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            subscription.delivery.seek_to_time(now, time);
            if !restored.is_empty() {
                subscription.delivery.restore(now, &restored);
            }
        }
    }

    fn seek_to_snapshot(&mut self, now: Time, name: &Name, snapshot: &str) -> Answer<()> {
        let snapshot = self.snapshot("snapshot", snapshot)?;
        let Some(subscription) = self.subscriptions.get(name) else { return Err(Refusal::not_found(name)) };
        if subscription.topic != snapshot.topic {
            return Err(Refusal::new(
                tonic::Code::FailedPrecondition,
                format!(
                    "The subscription's topic {} is different from that of the snapshot {}; they must match in order \
                     for Seek to work. A topic that was deleted and created again with the same name is another one.",
                    subscription.config.topic, snapshot.config.topic
                ),
            ));
        }
        let contents = snapshot.contents.filtered(|message| subscription.admits(message));
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            subscription.delivery.seek_to(now, &contents);
        }
        Ok(())
    }

    /// Records that a subscription is in use.
    pub(super) fn touch(&mut self, now: Time, name: &str) {
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            subscription.touch(now);
        }
    }
}

/// Refuses a detached subscription, which has no messages.
pub(super) fn check_attached(subscription: &Subscription) -> Answer<()> {
    if subscription.config.detached {
        return Err(Refusal::new(
            tonic::Code::FailedPrecondition,
            format!("The subscription {} is detached from its topic.", subscription.name),
        ));
    }
    Ok(())
}

/// A valid expiry lies in the future, at most the maximum lifetime after the snapshot's creation.
fn expiry(now: Time, snapshot: &Snapshot, update: &pubsub::Snapshot) -> Answer<Time> {
    let expires = update.expire_time.as_ref().and_then(Time::from_timestamp);
    expires
        .filter(|expires| *expires > now && *expires <= snapshot.made + LONGEST_SNAPSHOT)
        .ok_or_else(|| limits::bad_argument("snapshot.expire_time"))
}
