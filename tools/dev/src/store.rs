//! The connection to the queue's tables, and the durations that apply there.
//!
//! It must never change the durations of a server that it was given: other processes rely on them.

use std::time::Duration;

use wakeq::database::TimingMode;
use wakeq::targets::SecretKeys;
use wakeq::{Store, StoreConfig, StoreError, Timing};

use crate::screen;

/// So short that what goes wrong is tried again while its developer looks on. Leases are not: a
/// process in a debugger would lose them.
fn impatient() -> Timing {
    let seconds = Duration::from_secs;
    Timing {
        grace: seconds(2),
        probe_period: seconds(1),
        probe_backoff: seconds(5),
        probe_backoff_max: seconds(20),
        unknown_handler_wait: seconds(2),
        retry_delay_max: seconds(5),
        ..Timing::default()
    }
}

/// Connects to the tables. A server of our own gets short durations, which a user's program adopts
/// when it joins. A server that was given gets the defaults if it has none yet; otherwise it keeps
/// its own, which are printed.
pub(super) async fn connect(
    url: &str,
    is_ours: bool,
    may_forget: bool,
    secret_keys: &SecretKeys,
) -> Result<Store, StoreError> {
    let config = StoreConfig {
        allow_unsafe_durability: may_forget,
        secret_keys: secret_keys.clone(),
        ..StoreConfig::default()
    };
    if is_ours {
        let (timing, timing_mode) = (Some(impatient()), TimingMode::Replace);
        return Store::connect(url, StoreConfig { timing, timing_mode, ..config }).await;
    }
    let store = Store::connect(url, config).await?;
    if *store.timing() != Timing::default() {
        let durations = store.timing().fields().map(|(name, value)| format!("{name} {value:?}")).join(", ");
        screen::line(&format!("Durations: those stored in this database apply: {durations}"));
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use wakeq_testbed::TestDatabase;

    use super::*;

    // Shows: DEV-02
    #[tokio::test]
    async fn keeps_stored_durations_and_shortens_those_of_our_own_server() {
        let migrate = |url: String| async move { Store::migrate(&url, false).await.map(|_| ()) };
        let database = TestDatabase::create(b"the tables of a test of cargo dev", migrate).await.unwrap();
        let lease = |store: &Store| store.timing().lease;

        let first = connect(database.url(), false, true, &SecretKeys::default()).await.unwrap();
        assert_eq!(first.timing(), &Timing::default());
        let timing = Timing { lease: Duration::from_secs(45), ..Timing::default() };
        let replacing = StoreConfig {
            timing: Some(timing),
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
        assert_eq!(ours.timing(), &impatient());
        let config = StoreConfig { allow_unsafe_durability: true, ..StoreConfig::default() };
        let joined = Store::connect(database.url(), config).await.unwrap();
        assert_eq!(joined.timing(), &impatient(), "a program that joins needs no configuration");
    }
}
