//! A leased copy, for requests about leases.

use std::time::Duration;

use wakeq::queues::{NewQueue, PullPolicy};
use wakeq::{Actor, EventId};

use crate::support::service::Service;

/// The pulled queue.
pub(super) const PULLED: &str = "pulled_events";

/// Creates a copy in the pulled queue and leases it; returns its id and the lease.
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

/// Makes every lease of the pulled queue expired or current.
pub(super) async fn run_out(service: &Service, over: bool) {
    let shift = "update wakeq.events_v2 set locked_at = now() + $2 * interval '1 h' where queue = $1";
    let shift = sqlx::query(shift).bind(PULLED).bind(if over { -9.0 } else { 1.0 });
    shift.execute(&service.stage.pool).await.unwrap();
}
