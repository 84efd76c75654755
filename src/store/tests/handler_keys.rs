//! Claims for few handlers and for many, which are looked up among hashes.

use super::crowds::FEW;
use super::{Table, limits, told};
use crate::event::{EventId, Notification};
use crate::store::ClaimLimits;

impl Table {
    /// An event of a handler on another canvas.
    async fn add_theirs(&self, name: &str) -> EventId {
        let id = self.add_for(1, name).await[0];
        let moved = sqlx::query("update wakeq.events_v2 set canvas_id = $1 where id = $2");
        moved.bind(FEW.0).bind(id.0).execute(&self.pool).await.unwrap();
        id
    }
}

/// However many there are, the events of all of them are claimed, on each canvas, and no others.
#[tokio::test]
async fn events_of_all_handlers_are_claimed_and_no_others() {
    let table = Table::new().await;
    for count in [1, 64, 65, 10_000] {
        let names: Vec<String> = (0..count).map(|number| format!("WORKER/h{number}/_")).collect();
        let limits = ClaimLimits { handlers: names.into(), ..limits() };
        let mut known = Vec::new();
        for number in [0, count / 2, count - 1] {
            known.extend(table.add_for(1, &format!("h{number}")).await);
        }
        let mut all = known.clone();
        for unknown in ["h".to_owned(), format!("h{count}"), "H0".to_owned()] {
            all.extend(table.add_for(1, &unknown).await);
        }
        let (theirs, strange) = (table.add_theirs("h0").await, table.add_theirs("h").await);
        let mut told = told(&all);
        told.extend([theirs, strange].map(|id| Notification::new(id, FEW)));
        known.push(theirs);
        let claimed = table.store.claim(&told, &limits).await.unwrap();
        let claimed: Vec<EventId> = claimed.iter().flatten().map(|event| event.claim.id).collect();
        assert_eq!(claimed, known, "{count} handlers");
    }
}

/// Whoever names an event with another's canvas claims nothing, also where hashes are compared.
#[tokio::test]
async fn a_hashed_handler_is_of_the_named_canvas() {
    let table = Table::new().await;
    let names: Vec<String> = (0..100).map(|number| format!("WORKER/h{number}/_")).collect();
    let limits = ClaimLimits { handlers: names.into(), ..limits() };
    let theirs = table.add_theirs("h0").await;
    let claimed = table.store.claim(&told(&[theirs]), &limits).await.unwrap();
    assert!(matches!(claimed[..], [None]), "{claimed:?}");
}

/// The next server of a process that lives on may make other hashes.
#[tokio::test]
async fn hashes_of_another_server_are_made_again() {
    let table = Table::new().await;
    let names: Vec<String> = (0..100).map(|number| format!("WORKER/h{number}/_")).collect();
    let limits = ClaimLimits { handlers: names.into(), ..limits() };
    for at in 0..3 {
        let told = told(&table.add_for(1, "h7").await);
        assert!(matches!(table.store.claim(&told, &limits).await.unwrap()[..], [Some(_)]), "claim {at}");
        limits.handlers.outdate().await;
    }
}
