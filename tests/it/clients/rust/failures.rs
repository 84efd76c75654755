//! What failed of two tenants' handlers of the same name: error groups, and objects that are
//! halted.

use std::time::Duration;

use wakeq_client::{Client, DeadFilter, ErrorGroupFilter, EventFilter, NewEvent, PullPolicy, Release};

use super::{Tenants, refused, service};

/// Emits events of `greet` and lets each die of one of these errors.
async fn die(client: &Client, errors: &[&str]) {
    client.pull("WORKER", "greet", &PullPolicy::default()).await.unwrap();
    let now = || NewEvent::new("greet", &1).unwrap();
    client.emit_all(&errors.iter().map(|_| now()).collect::<Vec<_>>()).await.unwrap();
    let leased = client.lease("WORKER", "greet", 10, Duration::from_secs(60), Duration::ZERO).await.unwrap();
    assert_eq!(leased.len(), errors.len());
    for (event, error) in leased.iter().zip(errors) {
        assert!(client.release(event, &Release::dead(*error)).await.unwrap().died);
    }
}

fn greets() -> ErrorGroupFilter {
    ErrorGroupFilter { name: Some("greet".into()), ..ErrorGroupFilter::default() }
}

#[tokio::test]
async fn dead_events_are_grouped_and_marked_as_known() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    die(&mine, &["no answer after 3s", "no answer after 7s", "no such user"]).await;
    die(&other, &["refused"]).await;
    let first = mine.error_groups(&greets(), 1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.error_groups(&greets(), 1, cursor).await.unwrap();
    let silence = &first.items[0];
    assert_eq!((silence.fingerprint.as_str(), silence.count), ("no answer after #", 2));
    assert_eq!((silence.cause.as_str(), first.looked_at, first.more), ("rejected", 3, false));
    assert_eq!((second.items[0].fingerprint.as_str(), second.items[0].count), ("no such user", 1));
    assert_eq!(mine.error_group(silence.id).await.unwrap().example_id, silence.example_id);
    let of_group = EventFilter { error_group: Some(silence.id), ..EventFilter::default() };
    assert_eq!(mine.search_dead_events(&of_group, 10, None).await.unwrap().items.len(), 2);

    let known = mine.know_error(silence.id, Some("ticket 17")).await.unwrap();
    assert_eq!((known.note.as_deref(), known.by.as_str()), (Some("ticket 17"), "key:client"));
    assert_eq!(mine.error_group(silence.id).await.unwrap().known, Some(known));
    let news = ErrorGroupFilter { known: Some(false), latest_first: true, ..greets() };
    let news = mine.error_groups(&news, 10, None).await.unwrap().items;
    assert_eq!(news.iter().map(|group| group.id).collect::<Vec<_>>(), [second.items[0].id]);
    for cursor in [None, cursor] {
        let theirs = other.error_groups(&greets(), 10, cursor).await.unwrap().items;
        assert!(theirs.iter().all(|group| group.fingerprint == "refused"), "{theirs:?}");
        refused(intruder.error_groups(&greets(), 10, cursor).await, 404, "not-found");
    }
    for stranger in [&other, &intruder] {
        refused(stranger.error_group(silence.id).await, 404, "not-found");
        refused(stranger.know_error(silence.id, None).await, 404, "not-found");
        refused(stranger.forget_error(silence.id).await, 404, "not-found");
    }
    mine.forget_error(silence.id).await.unwrap();
    assert_eq!(mine.error_group(silence.id).await.unwrap().known, None);
    service.stop().await;
}

#[tokio::test]
async fn dead_events_are_deleted_on_their_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    for client in [&mine, &other] {
        die(client, &["refused", "no such user"]).await;
    }
    let greets = DeadFilter { name: Some("greet".into()), ..DeadFilter::default() };
    refused(mine.delete_dead(&DeadFilter::default()).await, 400, "bad-request");
    refused(intruder.delete_dead(&greets).await, 404, "not-found");
    assert_eq!(mine.count_delete_dead(&greets).await.unwrap(), 2);
    let deleted = mine.delete_dead(&greets).await.unwrap();
    assert_eq!((deleted.deleted, deleted.more, deleted.before.is_some()), (2, false, true));
    assert_eq!(mine.count_delete_dead(&greets).await.unwrap(), 0);
    assert_eq!(other.count_delete_dead(&greets).await.unwrap(), 2);
    service.stop().await;
}

#[tokio::test]
async fn an_object_that_is_halted_is_listed_and_resumed_without_its_dead_event() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let on = |object: &str| NewEvent::new("greet", &1).unwrap().on(object);
    for client in [&mine, &other] {
        client.pull("WORKER", "greet", &PullPolicy::default().halts()).await.unwrap();
    }
    mine.emit_all(&[on("work:1"), on("work:2")]).await.unwrap();
    other.emit(&on("work:1")).await.unwrap();
    let minute = Duration::from_secs(60);
    let leased = mine.lease("WORKER", "greet", 10, minute, Duration::ZERO).await.unwrap();
    assert_eq!(leased.len(), 2);
    for event in &leased {
        assert!(mine.release(event, &Release::dead("no such work")).await.unwrap().died);
    }
    let first = mine.halted_objects(1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.halted_objects(1, cursor).await.unwrap();
    let halted = [&first, &second].map(|page| page.items[0].event);
    assert_eq!(halted, [leased[0].id, leased[1].id], "the longest halted first");
    assert!(first.items[0].object.starts_with("work:") && first.items[0].object != second.items[0].object);
    assert_eq!(mine.handler("WORKER", "greet").await.unwrap().halted, 2);
    for cursor in [None, cursor] {
        assert!(other.halted_objects(10, cursor).await.unwrap().items.is_empty());
        refused(intruder.halted_objects(10, cursor).await, 404, "not-found");
    }
    assert!(!other.skip_object("work:1", "WORKER", "greet").await.unwrap());
    refused(intruder.skip_object("work:1", "WORKER", "greet").await, 404, "not-found");
    assert!(mine.skip_object("work:1", "WORKER", "greet").await.unwrap());
    assert!(!mine.skip_object("work:1", "WORKER", "greet").await.unwrap());
    assert_eq!(mine.halted_objects(10, None).await.unwrap().items.len(), 1);
    service.stop().await;
}
