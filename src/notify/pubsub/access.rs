//! The broker as the publisher and the streams share it, to create what is missing.

use tokio::sync::RwLock;

use super::clients::Admins;
use super::config::PubSubConfig;
use super::topics::{TopicsReport, create_with};
use crate::notify::NotifyError;

/// Shared by the publisher and the streams: creates what is missing.
#[derive(Debug)]
pub(super) struct BrokerAccess {
    pub(super) admins: Admins,
    /// Held for reading while publishing: a message to a topic that has no subscription yet is
    /// lost.
    pub(super) creating: RwLock<()>,
}

impl BrokerAccess {
    pub(super) async fn create(&self, config: &PubSubConfig) -> Result<TopicsReport, NotifyError> {
        let _nobody_publishes = self.creating.write().await;
        create_with(&self.admins, config).await
    }
}
