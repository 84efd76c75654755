//! A copy that is leased, for requests about such ones.

use std::time::Duration;

use wakeq::{Actor, EventId, NewQueue, PullPolicy};

use crate::service::Service;

/// The queue that is pulled.
pub(super) const PULLED: &str = "pulled_events";

/// A copy of the queue that is pulled, which is leased.
pub(super) async fn lease(service: &Service) -> (EventId, String) {
    let (admin, queue) = (&service.stage.admin, PULLED.parse().unwrap());
    let pulled = NewQueue {
        patterns: vec![":pulled_event:".parse().unwrap()],
        pull: Some(PullPolicy::default()),
        ..NewQueue::default()
    };
    admin.put_queue(&queue, &pulled, &Actor::user("tests")).await.unwrap();
    let event = wakeq::Event::new("pull", &1).unwrap().module("pulled_event").unwrap().only_to_queues();
    service.stage.queue.emit(event).await.unwrap();
    let (hour, now) = (Duration::from_secs(3600), Duration::ZERO);
    let copy = admin.lease_copies(&queue, 1, hour, now).await.unwrap().remove(0);
    (copy.id, copy.lease.reveal().to_owned())
}

/// Lets every lease of the queue that is pulled be over, or last.
pub(super) async fn run_out(service: &Service, over: bool) {
    let shift = "update wakeq.events_v2 set locked_at = now() + $2 * interval '1 h' where queue = $1";
    let shift = sqlx::query(shift).bind(PULLED).bind(if over { -9.0 } else { 1.0 });
    shift.execute(&service.stage.pool).await.unwrap();
}
