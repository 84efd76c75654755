//! Workers of other programs that take notifications from the emulator in this process.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wakeq::notify::PubSub;
use wakeq_testbed::PubSub as Emulator;

/// A look reads a list in this process, and makes no request.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// A worker that leaves may only be starting again.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// The clients of the subscription.
pub(super) struct OtherWorkers<'a> {
    emulator: &'a Emulator,
    subscription: &'a str,
}

impl<'a> OtherWorkers<'a> {
    /// Takes the path of the subscription.
    pub(super) fn new(emulator: &'a Emulator, subscription: &'a str) -> Self {
        Self { emulator, subscription }
    }

    /// Waits for one; without end if only another process knows.
    pub(super) async fn joined(&self) {
        while !self.any() {
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Waits until there was none for a while.
    pub(super) async fn left(&self) {
        let mut last_seen = Instant::now();
        while last_seen.elapsed() < GONE_AFTER {
            sleep(BETWEEN_LOOKS).await;
            if self.any() {
                last_seen = Instant::now();
            }
        }
    }

    fn any(&self) -> bool {
        let clients = self.emulator.clients(self.subscription).unwrap_or_default();
        is_another_among(&clients, PubSub::client_name())
    }
}

/// Whether a process other than ours is among the clients. A worker of ours has several streams.
fn is_another_among(clients: &[String], ours: &str) -> bool {
    clients.iter().any(|client| client != ours)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wakeq::notify::{DEVELOPMENT_PROJECT, Notifier, PubSubConfig};
    use wakeq_testbed::OwnEmulator;

    use super::*;

    #[test]
    fn a_worker_is_known_by_its_process_and_not_by_its_streams() {
        let table: [(&[&str], bool); 5] = [
            (&[], false),
            (&["ours"], false),
            (&["ours", "ours", "ours"], false),
            (&["ours", "ours", "another"], true),
            (&["another"], true),
        ];
        for (clients, expected) in table {
            let clients: Vec<String> = clients.iter().map(ToString::to_string).collect();
            assert_eq!(is_another_among(&clients, "ours"), expected, "{clients:?}");
        }
    }

    /// As the worker's two streams: two subscriptions to the notifier, each on a connection of its
    /// own; and a publisher beside them.
    #[tokio::test]
    async fn all_streams_of_this_process_have_its_name() {
        let _time = wakeq_testbed::TestTime::begin();
        let emulator = OwnEmulator::start().await.unwrap();
        let config = PubSubConfig {
            emulator_host: Some(emulator.host()),
            create_missing: true,
            ..PubSubConfig::new(DEVELOPMENT_PROJECT)
        };
        let subscription = format!("projects/{}/subscriptions/{}", config.project, config.subscription);
        let pubsub = Arc::new(PubSub::connect(config).await.unwrap());
        let _streams = [pubsub.subscribe(10).await.unwrap(), pubsub.subscribe(10).await.unwrap()];
        wakeq_testbed::wait_while!(emulator.clients(&subscription).len() != 2, "a stream has not begun");
        let clients = emulator.clients(&subscription);
        assert!(!is_another_among(&clients, PubSub::client_name()), "{clients:?}");
    }
}
