//! Limits of two tenants under the same names, and the workers and queues that a key of every
//! canvas sees.

use std::time::Duration;

use uuid::Uuid;
use wakeq::{Handlers, WorkerConfig};
use wakeq_client::{Client, EventOptions, NewEvent, NewLimit, OnFull, PullPolicy, Rate, WorkerState};
use wakeq_service::access::Scope;

use super::{Tenants, refused, register_mirror, service};
use crate::support::receiver::calling;
use crate::support::wait_while;

#[tokio::test]
async fn a_limit_is_set_listed_and_removed_on_its_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let rate = Rate::new(100, Duration::from_secs(60)).burst(10);
    let limit = NewLimit::default().concurrency(5).rate(rate).on_full(OnFull::Drop).waiting_max(1_000);
    let set = mine.set_limit("customer", &limit).await.unwrap();
    assert_eq!((set.new, set.limit.concurrency, set.limit.rate), (true, Some(5), Some(rate)));
    assert_eq!((set.limit.on_full, set.limit.waiting_max), (OnFull::Drop, Some(1_000)));
    let five = NewLimit::default().concurrency(5);
    assert!(!mine.set_limit("customer", &five).await.unwrap().new);
    mine.set_limit("handler:WORKER/greet", &five).await.unwrap();
    other.set_limit("customer", &NewLimit::default().concurrency(9)).await.unwrap();
    let shown = mine.limit("customer").await.unwrap();
    assert_eq!((shown.concurrency, shown.rate, shown.is_default), (Some(5), None, false));

    let first = mine.limits(1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.limits(1, cursor).await.unwrap();
    let names: Vec<&str> = [&first, &second].iter().map(|page| page.items[0].name.as_str()).collect();
    assert_eq!(names, ["customer", "handler:WORKER/greet"]);
    assert!(other.limits(10, cursor).await.unwrap().items.is_empty());
    let theirs = other.limits(10, None).await.unwrap().items;
    assert_eq!(theirs.iter().map(|limit| limit.concurrency).collect::<Vec<_>>(), [Some(9)]);
    refused(intruder.limits(10, None).await, 404, "not-found");
    refused(intruder.set_limit("customer", &five).await, 404, "not-found");
    for stranger in [&other, &intruder] {
        refused(stranger.limit("handler:WORKER/greet").await, 404, "not-found");
        refused(stranger.remove_limit("handler:WORKER/greet").await, 404, "not-found");
    }
    refused(mine.set_limit("customer", &NewLimit::default()).await, 400, "bad-request");
    mine.remove_limit("customer").await.unwrap();
    refused(mine.limit("customer").await, 404, "not-found");
    assert_eq!(other.limit("customer").await.unwrap().concurrency, Some(9));
    service.stop().await;
}

#[tokio::test]
async fn the_use_of_a_limit_is_shown_to_its_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let two = NewLimit::default().concurrency(2);
    let keyed = |key: &str| {
        let options = EventOptions::default().limit(key);
        NewEvent::new("greet", &1).unwrap().options(options)
    };
    mine.pull("WORKER", "greet", &PullPolicy::default()).await.unwrap();
    for client in [&mine, &other] {
        client.set_limit("customer", &two).await.unwrap();
    }
    let seven = mine.emit(&keyed("customer:7")).await.unwrap().id;
    let eight = mine.emit(&keyed("customer:8")).await.unwrap().id;
    let minute = Duration::from_secs(60);
    let leased = mine.lease("WORKER", "greet", 10, minute, Duration::ZERO).await.unwrap();
    assert_eq!(leased.len(), 2);
    let first = mine.limit_uses("customer", 1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.limit_uses("customer", 1, cursor).await.unwrap();
    for (page, name, id) in [(&first, "customer:7", seven), (&second, "customer:8", eight)] {
        let used = &page.items[0];
        assert_eq!((used.name.as_str(), used.running, used.waiting), (name, 1, 0));
        assert_eq!((&used.holders[..], used.next_start), (&[id][..], None));
    }
    for cursor in [None, cursor] {
        assert!(other.limit_uses("customer", 10, cursor).await.unwrap().items.is_empty());
        refused(intruder.limit_uses("customer", 10, cursor).await, 404, "not-found");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_key_of_every_canvas_sees_the_workers() {
    let service = service().await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let key = service.wide_key("wide", &[Scope::Read]).await;
    let wide = Client::new(&format!("http://{}", service.address), &key).unwrap();
    let worker = calling(&service.stage.store, &service.stage, Handlers::new(), WorkerConfig::default());
    let listed = async || wide.workers(10, None).await.unwrap().items;
    wait_while!(listed().await.is_empty(), "no worker is seen");
    let seen = listed().await.remove(0);
    assert_eq!((seen.state, seen.running), (WorkerState::Working, 0));
    for instance in [None, Some(seen.instance)] {
        let shown = wide.worker(&seen.name, instance).await.unwrap();
        assert_eq!((&shown.summary.name, shown.summary.instance), (&seen.name, seen.instance));
        assert!(shown.has_targets && shown.runs.is_empty());
    }
    refused(wide.worker(&seen.name, Some(Uuid::nil())).await, 404, "not-found");
    for narrow in [&mine, &other] {
        refused(narrow.workers(10, None).await, 403, "forbidden");
        refused(narrow.worker(&seen.name, None).await, 403, "forbidden");
    }
    worker.stop().await;
    service.stop().await;
}

#[tokio::test]
async fn a_key_of_every_canvas_sees_the_queues() {
    let service = service().await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let key = service.wide_key("wide", &[Scope::Read]).await;
    let wide = Client::new(&format!("http://{}", service.address), &key).unwrap();
    assert!(wide.queues(10, None).await.unwrap().items.is_empty());
    register_mirror(&service).await;
    let queue = wide.queues(10, None).await.unwrap().items.remove(0);
    assert_eq!((queue.name.as_str(), queue.patterns.len()), ("mirror", 1));
    assert_eq!((queue.draining, queue.weight, queue.created_by.as_str()), (false, 1, "key:root"));
    for client in [&mine, &other] {
        let mirrored = NewEvent::new("mirror", &1).unwrap().only_to_queues();
        assert_eq!(client.emit(&mirrored).await.unwrap().copies, 1);
    }
    let depth = wide.queue_depth("mirror").await.unwrap();
    assert_eq!((depth.depth, depth.capped), (2, false));
    refused(wide.queue_depth("none").await, 404, "not-found");
    for narrow in [&mine, &other] {
        refused(narrow.queues(10, None).await, 403, "forbidden");
        refused(narrow.queue_depth("mirror").await, 403, "forbidden");
    }
    service.stop().await;
}
