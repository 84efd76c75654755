//! Which events are urgent: by their rows, and by their handlers.

use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::event::{Event, Traceparent};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));

/// An event of each of two canvases, and an urgent one of each.
async fn two_each(table: &Table) -> Vec<Notification> {
    let mut told = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        for (name, urgent) in [("greet", false), ("alarm", true)] {
            let event = Event::new(name, &1).unwrap().canvas(canvas);
            let event = if urgent { event.urgent() } else { event };
            let new = event.checked(CanvasId::DEFAULT, 1_000, |_| Traceparent::root()).unwrap();
            let new = Arc::new(new);
            table.store.insert_alone(&new).await.unwrap();
            told.push(Notification::new(new.id, canvas));
        }
    }
    told
}

/// Whatever the notification says, the row decides; one that is gone is not urgent.
#[tokio::test]
async fn the_rows_say_which_notifications_are_urgent() {
    let table = Table::new().await;
    let mut told = two_each(&table).await;
    told[0].urgent = true;
    told.push(Notification::new(EventId::new(), OTHER).urgent_if(true));
    let split = table.store.split_pulled(&told).await.unwrap();
    let urgent: Vec<bool> = split.workers.iter().map(|told| told.urgent).collect();
    assert_eq!((urgent, split.pulled.len()), (vec![false, true, false, true, false], 0));
}

/// A key for every canvas, one of a canvas, and a notification that names the wrong canvas.
#[tokio::test]
async fn the_handlers_of_events_are_found_on_their_canvases() {
    let table = Table::new().await;
    let told = two_each(&table).await;
    let of_all = ["WORKER/alarm/_".to_owned()];
    let of_one = [format!("{OTHER}/WORKER/greet/_")];
    let found = table.store.of_handlers(&told, &of_all, &of_one).await.unwrap();
    assert_eq!(found, [told[1].id, told[2].id, told[3].id].into());
    assert!(table.store.of_handlers(&told, &[], &[]).await.unwrap().is_empty());
    let forged = [Notification::new(told[3].id, CanvasId::DEFAULT), Notification::new(told[1].id, OTHER)];
    assert!(table.store.of_handlers(&forged, &of_all, &of_one).await.unwrap().is_empty());
}
