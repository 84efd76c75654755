//! Stored events that can't be applied again, at a start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeq_streams::{Applied, Entity, EntityConfig, EntityEvent, EventSubscriber, Rejection};

use super::{Balance, Bank, Change, OTHER, config, of, unhealthy, withdraw};
use crate::support::TIMEOUT;

/// Whether the program that hangs at withdrawals was replaced by one that does not.
static IS_MENDED: AtomicBool = AtomicBool::new(false);

/// Accounts, in a program that hangs when it applies a withdrawal.
struct HangingAccount;

impl Entity for HangingAccount {
    const TYPE: &'static str = "account";
    const SHAPE: u32 = 2;
    type State = Balance;
    type Event = Change;

    fn validate(_: &Balance, _: &Change) -> Result<(), Rejection> {
        Ok(())
    }

    fn apply(balance: Balance, change: &Change) -> Applied<Balance> {
        while matches!(change, Change::Withdraw { .. }) && !IS_MENDED.load(Ordering::SeqCst) {
            std::thread::park();
        }
        Applied::new(balance)
    }
}

/// A start that hangs reports that, with the entity and its canvas; a program that does not hang
/// starts.
// Shows: ENT-X3
#[tokio::test]
async fn a_start_that_hangs_names_the_entity() {
    let bank = Bank::open().await;
    let processor = bank.owner(config(), 1).await;
    bank.deposited("ada", 9).await;
    bank.deposited("bob", 9).await;
    for change in [Change::Deposit { cents: 5 }, Change::Withdraw { cents: 2 }] {
        bank.sent_to(&of(OTHER, "account", "ada"), EntityEvent::of(&change).unwrap()).await;
    }
    withdraw(&processor).await;
    let stall = Duration::from_millis(200);
    let hanging = bank.processor_of::<HangingAccount>(EntityConfig { stall, ..config() });
    hanging.accept(hanging.entity_type().source(), 2);
    let why = unhealthy(&hanging).await;
    assert!(why.contains(&format!("rebuilding {OTHER}/account/ada from")), "{why}");
    assert!(why.contains("deploy a program") && why.contains("groups recover entities.account"), "{why}");
    assert!(!hanging.is_ready());
    // Told to try again, it hangs again; the hanging thread is abandoned.
    hanging.recover();
    assert!(unhealthy(&hanging).await.contains("account/ada"));
    IS_MENDED.store(true, Ordering::SeqCst);
    hanging.recover();
    let started = tokio::time::timeout(TIMEOUT, hanging.ready()).await;
    assert_eq!(started.expect("it starts"), (3, 4), "entities and replayed events");
    withdraw(&hanging).await;
}
