//! A leased copy and a leased event, for requests about leases.

use std::time::Duration;

use wakeq::queues::{NewQueue, PullPolicy};
use wakeq::{Actor, CanvasId, EventId, HandlerScope};

use crate::support::service::Service;

/// The pulled queue, and the pulled handler.
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

/// Operations on a leased event.
pub(super) const OF_EVENTS: [&str; 3] = ["extend_event", "complete_event", "release_event"];

/// Creates an event of the pulled handler and leases it; returns its id and the lease.
pub(super) async fn lease_event(service: &Service) -> (EventId, String) {
    let admin = &service.stage.admin;
    let handler = HandlerScope::worker(CanvasId::DEFAULT, PULLED).unwrap();
    admin.put_pulled(&handler, &PullPolicy::default(), &Actor::user("tests")).await.unwrap();
    service.stage.queue.emit(wakeq::Event::new(PULLED, &1).unwrap()).await.unwrap();
    let (hour, now) = (Duration::from_secs(3600), Duration::ZERO);
    let event = admin.lease_events(&handler, 1, hour, now).await.unwrap().remove(0);
    (event.id, event.lease.reveal().to_owned())
}

/// Makes every lease of the pulled queue and handler expired or current.
pub(super) async fn run_out(service: &Service, over: bool) {
    let shift =
        "update wakeq.events_v2 set locked_at = now() + $2 * interval '1 h' where queue = $1 or name = $1";
    let shift = sqlx::query(shift).bind(PULLED).bind(if over { -9.0 } else { 1.0 });
    shift.execute(&service.stage.pool).await.unwrap();
}

/// The path about the pulled handler.
pub(super) fn of_pulled(path: &str) -> String {
    path.replace("/greet", &format!("/{PULLED}"))
}
