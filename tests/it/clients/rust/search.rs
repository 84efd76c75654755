//! Lists and counts of events, and what they are found by. The other tenant has events with the
//! same tags.

use std::time::Duration;

use uuid::Uuid;
use wakeq_client::{EndedFilter, EventFilter, EventOptions, NewEvent, PullPolicy, Release};

use super::{Tenants, later, refused, service};

fn tagged(event: NewEvent, tags: &[&str]) -> NewEvent {
    event.options(tags.iter().fold(EventOptions::default(), |options, tag| options.tag(tag)))
}

fn of_tag(tag: &str) -> EventFilter {
    EventFilter { tags: vec![tag.to_owned()], ..EventFilter::default() }
}

#[tokio::test]
async fn events_are_found_and_counted_on_their_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let both = mine.emit(&tagged(later("greet"), &["customer:7", "late"])).await.unwrap().id;
    let one = mine.emit(&tagged(later("greet"), &["customer:7"])).await.unwrap().id;
    let theirs = other.emit(&tagged(later("greet"), &["customer:7"])).await.unwrap().id;
    let seven = of_tag("customer:7");
    let first = mine.events(&seven, 1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.events(&seven, 1, cursor).await.unwrap();
    assert_eq!([first.items[0].id, second.items[0].id], [both, one]);
    assert_eq!(second.items[0].tags, ["customer:7"]);
    for cursor in [None, cursor] {
        let items = other.events(&seven, 10, cursor).await.unwrap().items;
        assert_eq!(items.iter().map(|event| event.id).collect::<Vec<_>>(), [theirs]);
    }
    let narrow = EventFilter {
        name: Some("greet".into()),
        tags: vec!["late".into(), "customer:7".into()],
        states: vec!["ready".into(), "delayed".into()],
        ..EventFilter::default()
    };
    let items = mine.events(&narrow, 10, None).await.unwrap().items;
    assert_eq!(items.iter().map(|event| event.id).collect::<Vec<_>>(), [both]);
    refused(mine.events(&of_tag("a,,b"), 10, None).await, 400, "bad-request");
    refused(intruder.events(&seven, 10, cursor).await, 404, "not-found");

    let to_ada = EventFilter { value: Some(r#"$.to = "Ada""#.into()), ..seven.clone() };
    let count = mine.count_events(&to_ada, None).await.unwrap();
    assert_eq!((count.count, count.next_cursor), (2, None));
    assert_eq!(other.count_events(&to_ada, None).await.unwrap().count, 1);
    let to_bo = EventFilter { value: Some(r#"$.to = "Bo""#.into()), ..seven };
    assert_eq!(mine.count_events(&to_bo, None).await.unwrap().count, 0);
    refused(intruder.count_events(&to_ada, None).await, 404, "not-found");
    service.stop().await;
}

#[tokio::test]
async fn an_event_gets_other_tags_and_another_time() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let id = mine.emit(&tagged(later("greet"), &["customer:7"])).await.unwrap().id;
    let theirs = other.emit(&tagged(later("greet"), &["customer:7"])).await.unwrap().id;
    let due = mine.explain(id).await.unwrap().delay_until.unwrap();
    let at = due + Duration::from_secs(60);
    for stranger in [&other, &intruder] {
        refused(stranger.set_tags(id, &["late"]).await, 404, "not-found");
        refused(stranger.set_due(id, at).await, 404, "not-found");
    }
    assert_eq!(mine.set_tags(id, &["late", "vip"]).await.unwrap(), id);
    let items = mine.events(&of_tag("vip"), 10, None).await.unwrap().items;
    assert_eq!(items[0].tags, ["late", "vip"]);
    assert!(mine.events(&of_tag("customer:7"), 10, None).await.unwrap().items.is_empty());
    let items = other.events(&of_tag("customer:7"), 10, None).await.unwrap().items;
    assert_eq!(items.iter().map(|event| event.id).collect::<Vec<_>>(), [theirs]);
    refused(mine.set_tags(id, &["a,b"]).await, 400, "bad-request");
    assert_eq!(mine.set_due(id, at).await.unwrap(), id);
    assert_eq!(mine.explain(id).await.unwrap().delay_until, Some(at));
    service.stop().await;
}

#[tokio::test]
async fn dead_events_are_found_by_tags_and_errors() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let now = || tagged(NewEvent::new("greet", &1).unwrap(), &["customer:7"]);
    for client in [&mine, &other] {
        client.pull("WORKER", "greet", &PullPolicy::default()).await.unwrap();
        client.emit_all(&[now(), now()]).await.unwrap();
    }
    let minute = Duration::from_secs(60);
    let leased = mine.lease("WORKER", "greet", 10, minute, Duration::ZERO).await.unwrap();
    for (event, error) in leased.iter().zip(["it timed out", "no such customer"]) {
        assert!(mine.release(event, &Release::dead(error)).await.unwrap().died);
    }
    let seven = of_tag("customer:7");
    let first = mine.search_dead_events(&seven, 1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.search_dead_events(&seven, 1, cursor).await.unwrap();
    assert_eq!([first.items[0].id, second.items[0].id], [leased[1].id, leased[0].id], "the latest first");
    assert_eq!(first.items[0].tags, ["customer:7"]);
    let timed_out = EventFilter { error_text: Some("timed".into()), ..seven.clone() };
    let found = mine.search_dead_events(&timed_out, 10, None).await.unwrap().items;
    assert_eq!(found.iter().map(|dead| dead.id).collect::<Vec<_>>(), [leased[0].id]);
    for cursor in [None, cursor] {
        assert!(other.search_dead_events(&seven, 10, cursor).await.unwrap().items.is_empty());
        refused(intruder.search_dead_events(&seven, 10, cursor).await, 404, "not-found");
    }
    let dead = EventFilter { states: vec!["dead".into()], ..seven };
    assert_eq!(mine.count_events(&dead, None).await.unwrap().count, 2);
    assert_eq!(other.count_events(&dead, None).await.unwrap().count, 0);
    service.stop().await;
}

#[tokio::test]
async fn ended_events_are_listed_on_their_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let kept = later("greet").options(EventOptions::default().keep(Duration::from_secs(3600)));
    let mut ids = Vec::new();
    for _ in 0..2 {
        let id = mine.emit(&kept).await.unwrap().id;
        mine.cancel(id).await.unwrap();
        ids.push(id);
    }
    let greets = EndedFilter { name: Some("greet".into()), ..EndedFilter::default() };
    let first = mine.ended_events(&greets, 1, None).await.unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = mine.ended_events(&greets, 1, cursor).await.unwrap();
    let found: Vec<Uuid> = [&first, &second].iter().map(|page| page.items[0].id).collect();
    assert_eq!(found, [ids[1], ids[0]], "the latest first");
    assert_eq!((first.items[0].outcome.as_str(), first.items[0].has_result), ("cancelled", false));
    assert_eq!(mine.explain(ids[0]).await.unwrap().kept_until, Some(second.items[0].kept_until));
    let failed = EndedFilter { outcome: Some("failed".into()), ..greets.clone() };
    assert!(mine.ended_events(&failed, 10, None).await.unwrap().items.is_empty());
    let unknown = EndedFilter { outcome: Some("dead".into()), ..greets.clone() };
    refused(mine.ended_events(&unknown, 10, None).await, 400, "bad-request");
    for cursor in [None, cursor] {
        assert!(other.ended_events(&greets, 10, cursor).await.unwrap().items.is_empty());
        refused(intruder.ended_events(&greets, 10, cursor).await, 404, "not-found");
    }
    service.stop().await;
}
