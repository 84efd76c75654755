//! Stored events that can't be applied again, at a start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeq::CanvasId;
use wakeq_streams::{Applied, Entity, EntityConfig, EntityEvent, EntityId, EventSubscriber, Rejection};

use super::{Balance, Bank, Change, config, unhealthy, withdraw};

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
    let other = CanvasId(uuid::Uuid::from_u128(7));
    let processor = bank.owner(config(), 1).await;
    bank.deposited("ada", 9).await;
    bank.deposited("bob", 9).await;
    let withdrawal = [Change::Deposit { cents: 5 }, Change::Withdraw { cents: 2 }];
    let ada = EntityId::new(other, "account", "ada").unwrap();
    for change in withdrawal {
        let sent = bank.entities.send(&ada, EntityEvent::of(&change).unwrap()).await.unwrap();
        bank.ended_on(other, sent.id.0).await;
    }
    withdraw(&processor).await;
    let stall = Duration::from_millis(200);
    let hanging = bank.processor_of::<HangingAccount>(EntityConfig { stall, ..config() });
    hanging.accept(hanging.entity_type().source(), 2);
    let why = unhealthy(&hanging).await;
    assert!(why.contains(&format!("rebuilding {other}/account/ada from")), "{why}");
    assert!(why.contains("deploy a program") && why.contains("groups recover entities.account"), "{why}");
    assert!(!hanging.is_ready());
    // Told to try again, it hangs again; the hanging thread is abandoned.
    hanging.recover();
    assert!(unhealthy(&hanging).await.contains("account/ada"));
    IS_MENDED.store(true, Ordering::SeqCst);
    hanging.recover();
    let (entities, replayed) =
        tokio::time::timeout(crate::support::TIMEOUT, hanging.ready()).await.expect("it starts");
    assert_eq!((entities, replayed), (3, 4));
    withdraw(&hanging).await;
}
