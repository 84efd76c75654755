//! Pushing: sends the broker's due messages to the endpoints, and reports their answers to the
//! broker.
//!
//! It decides neither what is sent nor when; which answers acknowledge a message is decided in
//! `endpoint`.

mod endpoint;
mod oidc;
mod request;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use self::endpoint::{EndpointError, Endpoints, Rest};
use self::request::Content;
use super::core::Core;
use crate::broker::{PushDelivery, PushResult};
use crate::proto::pubsub::push_config::AuthenticationMethod;

pub(super) use oidc::{DISCOVERY_PATH, KEYS_MAX_AGE_SECONDS, KEYS_PATH, KeyError};
pub(crate) use tokens::Tokens;

/// How long reading the rest of an answer may take, once that has acknowledged its message.
const REST_WITHIN: Duration = Duration::from_secs(1);

/// The state of all pushes.
pub(super) struct Pushing {
    core: Arc<Core>,
    endpoints: Endpoints,
    tokens: Arc<Tokens>,
}

impl Pushing {
    pub(super) fn new(core: Arc<Core>, tokens: Arc<Tokens>) -> Self {
        Self { core, endpoints: Endpoints::new(), tokens }
    }

    /// Pushes until the core is stopped, which aborts the requests in flight.
    pub(super) async fn run(self) {
        let pushing = Arc::new(self);
        // The broker limits how many there are at once.
        let mut requests = JoinSet::new();
        loop {
            let full = pushing.core.is_full();
            if !full {
                for delivery in pushing.core.with(|broker, now| broker.push_due(now)) {
                    requests.spawn(Arc::clone(&pushing).deliver(delivery));
                }
            }
            tokio::select! {
                () = pushing.core.stop().cancelled() => return,
                () = pushing.core.activity() => {}
                _room = pushing.core.room(), if full => {}
                // Its result has been reported, or its panic printed by the runtime.
                Some(_) = requests.join_next() => {}
            }
        }
    }

    async fn deliver(self: Arc<Self>, delivery: PushDelivery) {
        let mut outcome = Outcome::of(&self.core, &delivery);
        match self.send(&delivery).await {
            Ok(rest) => {
                outcome.result = PushResult::Acknowledged;
                drop(outcome);
                rest.read(REST_WITHIN).await;
            }
            Err(reason) => outcome.result = PushResult::Failed(reason),
        }
    }

    async fn send(&self, delivery: &PushDelivery) -> Result<Rest, String> {
        let mut content = Content::of(delivery).map_err(|error| error.to_string())?;
        if let Some(AuthenticationMethod::OidcToken(account)) = &delivery.config.authentication_method {
            let now = self.core.with(|_, now| now);
            let token = Tokens::token(&self.tokens, now, account, &delivery.config.push_endpoint);
            let token = token.await.map_err(|error| error.to_string())?;
            content.authorize(&token).map_err(|error| error.to_string())?;
        }
        let endpoint = &delivery.config.push_endpoint;
        let sent = self.endpoints.post(endpoint, content, delivery.deadline).await;
        sent.map_err(|error: EndpointError| error.to_string())
    }
}

/// Reports the outcome of a delivery to the broker when it is dropped, whatever it is.
struct Outcome<'a> {
    core: &'a Core,
    delivery: &'a PushDelivery,
    result: PushResult,
}

impl<'a> Outcome<'a> {
    fn of(core: &'a Core, delivery: &'a PushDelivery) -> Self {
        Self { core, delivery, result: PushResult::Failed("the push was interrupted".to_owned()) }
    }
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        let PushDelivery { subscription, ack_id, .. } = self.delivery;
        self.core.with(|broker, now| broker.push_answered(now, subscription, ack_id, &self.result));
    }
}
