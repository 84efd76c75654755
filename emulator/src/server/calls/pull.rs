//! Pull: waits for a message, gives up in time, and returns messages whose response did not reach
//! the caller.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{Calls, from_json, stopping, to_json};
use crate::broker::{Answer, Method};
use crate::proto::pubsub::{PullRequest, PullResponse};
use crate::server::core::Core;

/// A pull without messages is answered with none after this; most callers set a shorter limit.
const LONGEST_WAIT: Duration = Duration::from_secs(90);

/// The most that is reserved of a caller's limit for sending the answer.
const LONGEST_WAY: Duration = Duration::from_secs(5);

impl Calls {
    /// Answers with the messages that are available now or become so within the caller's limit.
    pub(in crate::server) async fn pull(
        &self,
        request: &PullRequest,
        timeout: Option<Duration>,
    ) -> Answer<PullResponse> {
        self.admit(Method::Pull).await?;
        #[expect(deprecated, reason = "clients that set it still get what it says")]
        let at_once = request.return_immediately;
        let waiter = self.core.wait_at(&request.subscription);
        let mut over = pin!(tokio::time::sleep(wait_within(timeout)));
        loop {
            if self.core.is_full() {
                if at_once {
                    return Ok(PullResponse::default());
                }
                tokio::select! {
                    _room = self.core.room() => {}
                    () = over.as_mut() => return Ok(PullResponse::default()),
                }
            }
            let mut rung = pin!(waiter.rung());
            rung.as_mut().enable();
            let response = self.core.with(|broker, now| broker.pull(now, request))?;
            if at_once || !response.received_messages.is_empty() {
                return Ok(response);
            }
            tokio::select! {
                () = self.core.stop().cancelled() => return Err(stopping()),
                () = rung => {}
                () = over.as_mut() => return Ok(PullResponse::default()),
            }
        }
    }

    /// The same with JSON.
    pub(in crate::server) async fn pull_json(
        &self,
        request: Value,
        timeout: Option<Duration>,
    ) -> Answer<(Value, PullGuard)> {
        let request: PullRequest = from_json(request)?;
        let response = self.pull(&request, timeout).await?;
        let pull_guard = PullGuard::new(&self.core, request.subscription, &response);
        Ok((to_json(&response)?, pull_guard))
    }
}

/// How long to wait for a caller with this limit: like the service, it answers "no messages" while
/// the caller still listens.
fn wait_within(timeout: Option<Duration>) -> Duration {
    timeout.map_or(LONGEST_WAIT, |time| (time - (time / 5).min(LONGEST_WAY)).min(LONGEST_WAIT))
}

/// The messages of a pull until its response is sent: if this is dropped before that, they are
/// available again.
///
/// It travels with the response to the code that writes it, which calls [`PullGuard::sent`].
#[derive(Clone)]
pub(in crate::server) struct PullGuard(Arc<PulledMessages>);

struct PulledMessages {
    core: Arc<Core>,
    subscription: String,
    ack_ids: Vec<String>,
    sent: AtomicBool,
}

impl PullGuard {
    pub(in crate::server) fn new(core: &Arc<Core>, subscription: String, response: &PullResponse) -> Self {
        let ack_ids = response.received_messages.iter().map(|message| message.ack_id.clone()).collect();
        Self(Arc::new(PulledMessages {
            core: Arc::clone(core),
            subscription,
            ack_ids,
            sent: AtomicBool::new(false),
        }))
    }

    pub(in crate::server) fn sent(&self) {
        self.0.sent.store(true, Ordering::Relaxed);
    }
}

impl Drop for PulledMessages {
    fn drop(&mut self) {
        if *self.sent.get_mut() || self.ack_ids.is_empty() {
            return;
        }
        self.core.with(|broker, now| broker.give_back(now, &self.subscription, &self.ack_ids));
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::broker::{Broker, Faults};
    use crate::clock::Clock;
    use crate::proto::pubsub::{PublishRequest, PubsubMessage, Subscription, Topic};

    const TOPIC: &str = "projects/a-project/topics/a-topic";
    const SUBSCRIPTION: &str = "projects/a-project/subscriptions/a-subscription";

    /// A broker, and the response of a pull from it.
    fn pulled() -> (Arc<Core>, PullResponse) {
        let core = Core::new(Broker::new(Faults::default()), Clock::default(), CancellationToken::new());
        let response = core.with(|broker, now| {
            broker.create_topic(now, Topic { name: TOPIC.to_owned(), ..Default::default() }).unwrap();
            let (name, topic) = (SUBSCRIPTION.to_owned(), TOPIC.to_owned());
            broker.create_subscription(now, Subscription { name, topic, ..Default::default() }).unwrap();
            let messages = vec![PubsubMessage { data: "one".into(), ..Default::default() }];
            broker.publish(now, PublishRequest { topic: TOPIC.to_owned(), messages }).unwrap();
            let subscription = SUBSCRIPTION.to_owned();
            broker.pull(now, &PullRequest { subscription, max_messages: 1, ..Default::default() }).unwrap()
        });
        (Arc::new(core), response)
    }

    fn leased(core: &Core) -> usize {
        core.with(|broker, now| broker.overview(now).subscriptions[0].messages.leased)
    }

    #[test]
    fn an_undelivered_pull_response_is_returned_and_a_sent_one_is_not() {
        let (core, response) = pulled();
        assert_eq!(leased(&core), 1);
        let pull_guard = PullGuard::new(&core, SUBSCRIPTION.to_owned(), &response);
        pull_guard.sent();
        drop(pull_guard);
        assert_eq!(leased(&core), 1);
        drop(PullGuard::new(&core, SUBSCRIPTION.to_owned(), &response));
        assert_eq!(leased(&core), 0);
    }
}
