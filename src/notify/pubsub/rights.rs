//! Asks Pub/Sub which permissions this process's account has on the topic and the subscription.
//!
//! It does not try them: nothing is published or received.

use std::time::Duration;

use google_cloud_gax::options::RequestOptionsBuilder;

use super::clients;
use super::config::PubSubConfig;
use super::failure::failed;
use crate::notify::NotifyError;

/// The time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The permissions of this process's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PubSubRights {
    /// An emulator has no permissions.
    Emulator,
    /// The permissions that the account lacks; empty if all is well.
    Missing(Vec<MissingPermission>),
}

/// A permission that the account lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPermission {
    /// Its name.
    pub permission: &'static str,
    /// The role that grants it.
    pub role: &'static str,
    /// The resource that it is needed on.
    pub resource: String,
    /// Whether nothing works without it.
    pub is_vital: bool,
}

/// Finds the permissions that a worker needs and its account lacks.
pub async fn missing_permissions(config: &PubSubConfig) -> Result<PubSubRights, NotifyError> {
    config.check()?;
    if config.emulator_host.is_some() {
        return Ok(PubSubRights::Emulator);
    }
    let needed =
        |permission, role, resource, is_vital| MissingPermission { permission, role, resource, is_vital };
    let publish = |topic| needed("pubsub.topics.publish", "roles/pubsub.publisher", topic, true);
    let consume = |class| {
        let subscription = config.subscription_path(class);
        [
            needed("pubsub.subscriptions.consume", "roles/pubsub.subscriber", subscription.clone(), true),
            needed("pubsub.subscriptions.get", "roles/pubsub.viewer", subscription, false),
        ]
    };
    let needed = std::iter::once(publish(config.topic_path())).chain(config.classes().flat_map(consume));
    let needed: Vec<MissingPermission> = needed.chain(config.broadcast_path().map(publish)).collect();
    let client = clients::rights().await?;
    let mut missing = Vec::new();
    for needed in needed {
        let request = client
            .test_iam_permissions()
            .set_resource(needed.resource.clone())
            .set_permissions([needed.permission])
            .with_attempt_timeout(REQUEST_TIMEOUT);
        let granted = request.send().await.map_err(|error| failed(&needed.resource, config, error))?;
        if !granted.permissions.iter().any(|granted| granted == needed.permission) {
            missing.push(needed);
        }
    }
    Ok(PubSubRights::Missing(missing))
}
