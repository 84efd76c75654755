//! The connection to the queue's tables, and the durations that apply there.
//!
//! It must never change the durations of a server that it was given: other processes rely on them.

use wakeq::database::TimingMode;
use wakeq::targets::SecretKeys;
use wakeq::{Store, StoreConfig, StoreError, Timing};

use crate::screen;

/// Connects to the tables. A server of our own gets the default durations, so that a user's program
/// can join without configuring any. A server that was given gets them only if it has none yet;
/// otherwise it keeps its own, which are printed.
pub(super) async fn connect(
    url: &str,
    is_ours: bool,
    may_forget: bool,
    secret_keys: &SecretKeys,
) -> Result<Store, StoreError> {
    let config = |timing_mode| StoreConfig {
        allow_unsafe_durability: may_forget,
        timing_mode,
        secret_keys: secret_keys.clone(),
        ..StoreConfig::default()
    };
    if is_ours {
        return Store::connect(url, config(TimingMode::Replace)).await;
    }
    match Store::connect(url, config(TimingMode::Agree)).await {
        Err(StoreError::OtherTiming { .. }) => {
            let store = Store::connect(url, config(TimingMode::Follow)).await?;
            let Timing {
                lease,
                horizon,
                grace,
                probe_period,
                probe_backoff,
                probe_backoff_max,
                unknown_handler_wait,
            } = store.timing();
            screen::line(&format!(
                "Durations: those stored in this database apply: lease {lease:?}, horizon {horizon:?}, grace {grace:?}, \
                 probe every {probe_period:?}, backing off from {probe_backoff:?} to {probe_backoff_max:?}, unknown handlers \
                 after {unknown_handler_wait:?}"
            ));
            Ok(store)
        }
        connected => connected,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wakeq_services::TestDatabase;

    use super::*;

    // Shows: DEV-02
    #[tokio::test]
    async fn keeps_stored_durations_and_writes_defaults_to_our_own_server() {
        let migrate = |url: String| async move { Store::migrate(&url, false).await.map(|_| ()) };
        let database = TestDatabase::create(b"the tables of a test of cargo dev", migrate).await.unwrap();
        let lease = |store: &Store| store.timing().lease;

        let first = connect(database.url(), false, true, &SecretKeys::default()).await.unwrap();
        assert_eq!(first.timing(), &Timing::default());
        let timing = Timing { lease: Duration::from_secs(45), ..Timing::default() };
        let replacing = StoreConfig {
            timing,
            timing_mode: TimingMode::Replace,
            allow_unsafe_durability: true,
            ..StoreConfig::default()
        };
        Store::connect(database.url(), replacing).await.unwrap();

        for _ in 0..2 {
            let given = connect(database.url(), false, true, &SecretKeys::default()).await.unwrap();
            assert_eq!(lease(&given), Duration::from_secs(45), "and it stays so");
        }
        let ours = connect(database.url(), true, true, &SecretKeys::default()).await.unwrap();
        assert_eq!(ours.timing(), &Timing::default());
    }
}
