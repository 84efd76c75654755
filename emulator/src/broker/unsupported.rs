//! Settings that need what is not in the emulator: which ones a resource has, and why they are not
//! carried out.
//!
//! They are refused, or stored and returned if that was asked for. One that is stored must never
//! change what happens to a message.

mod forms;

use super::{Answer, Broker, Refusal};
use crate::proto::pubsub;

/// Why such a setting is not carried out, by its field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Unsupported {
    field: &'static str,
    reason: &'static str,
    /// Whether it may be stored all the same.
    storable: bool,
}

/// A setting that is stored and returned, and not carried out.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct StoredSetting {
    /// The full name of the topic or the subscription.
    pub resource: String,
    /// The field, as the protocol names it.
    pub field: &'static str,
    /// Why it is not carried out.
    pub reason: &'static str,
}

/// Refuses what is not supported, unless it `accepts` what can be stored; of that, it checks the
/// form, and fills in what the service does.
pub(super) fn complete_topic(topic: &mut pubsub::Topic, accepts: bool) -> Answer<()> {
    check("Topic", &of_topic(topic), accepts)?;
    forms::complete_topic(topic)
}

/// The same for a subscription.
pub(super) fn complete_subscription(subscription: &mut pubsub::Subscription, accepts: bool) -> Answer<()> {
    check("Subscription", &of_subscription(subscription), accepts)?;
    forms::complete_subscription(subscription)
}

/// The settings of a topic that are not carried out.
pub(super) fn of_topic(topic: &pubsub::Topic) -> Vec<Unsupported> {
    let keys = "messages are kept in memory only, and no keys are managed";
    let present = [
        (!topic.kms_key_name.is_empty(), storable("kms_key_name", keys)),
        (
            topic.ingestion_data_source_settings.is_some(),
            storable("ingestion_data_source_settings", "nothing is imported from other services"),
        ),
        transforms(&topic.message_transforms),
        tags(topic.tags.is_empty()),
    ];
    present.into_iter().filter_map(|(is_set, setting)| is_set.then_some(setting)).collect()
}

/// The settings of a subscription that are not carried out.
pub(super) fn of_subscription(subscription: &pubsub::Subscription) -> Vec<Unsupported> {
    let present = [
        (
            subscription.bigquery_config.is_some(),
            storable("bigquery_config", "there is no BigQuery to write to"),
        ),
        (
            subscription.cloud_storage_config.is_some(),
            storable("cloud_storage_config", "there is no Cloud Storage to write to"),
        ),
        (
            subscription.bigtable_config.is_some(),
            storable("bigtable_config", "there is no Bigtable to write to"),
        ),
        (
            subscription.analytics_hub_subscription_info.is_some(),
            refused("analytics_hub_subscription_info", "there is no Analytics Hub"),
        ),
        transforms(&subscription.message_transforms),
        tags(subscription.tags.is_empty()),
    ];
    present.into_iter().filter_map(|(is_set, setting)| is_set.then_some(setting)).collect()
}

/// These settings as those of a resource.
pub(super) fn stored(resource: &str, settings: Vec<Unsupported>) -> impl Iterator<Item = StoredSetting> {
    settings.into_iter().map(move |Unsupported { field, reason, .. }| StoredSetting {
        resource: resource.to_owned(),
        field,
        reason,
    })
}

impl Broker {
    /// From now on, stores and returns settings such as `kms_key_name` and `bigquery_config`, which
    /// it does not carry out, instead of refusing them.
    pub fn accept_unsupported(&mut self) {
        self.accepts_unsupported = true;
    }

    /// Takes the lines for the log since the last call: one for each resource that was given such
    /// settings.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Notes the settings that a resource did not have before.
    pub(super) fn note_unsupported(&mut self, name: &str, before: &[Unsupported], now: &[Unsupported]) {
        let new = now.iter().filter(|setting| !before.contains(setting));
        let new: Vec<_> =
            new.map(|Unsupported { field, reason, .. }| format!("{field} ({reason})")).collect();
        if !new.is_empty() {
            self.notices.push(format!("{name}: stored, but not carried out: {}", new.join(", ")));
        }
    }
}

fn check(resource: &str, settings: &[Unsupported], accepts: bool) -> Answer<()> {
    let Some(setting) = settings.iter().find(|setting| !(accepts && setting.storable)) else {
        return Ok(());
    };
    let Unsupported { field, reason, storable } = setting;
    let advice = if *storable {
        " With --accept-unsupported (Options::accept_unsupported), it is stored and returned, but not \
         carried out."
    } else {
        ""
    };
    Err(Refusal::unsupported(format!("This emulator does not support {resource}.{field}: {reason}.{advice}")))
}

fn transforms(transforms: &[pubsub::MessageTransform]) -> (bool, Unsupported) {
    (!transforms.is_empty(), storable("message_transforms", "no scripts and no models are run"))
}

fn tags(is_empty: bool) -> (bool, Unsupported) {
    (!is_empty, refused("tags", "there is no resource manager to bind them to"))
}

const fn storable(field: &'static str, reason: &'static str) -> Unsupported {
    Unsupported { field, reason, storable: true }
}

const fn refused(field: &'static str, reason: &'static str) -> Unsupported {
    Unsupported { field, reason, storable: false }
}
