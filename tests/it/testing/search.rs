//! Filters of events in the kit's tables against Postgres: the same events are selected on both, of
//! those that wait and of dead ones, page by page; and another tenant's tags are others.

use std::time::Duration;

use wakeq::control::{Cursor, ErrorGroupId, EventFilter, EventState};
use wakeq::events::Tag;
use wakeq::testing::TestKit;
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, HandlerError, Handlers, RetryPolicy, Route, Stop};

use super::on_postgres;
use crate::support::{OTHER, scope};

/// Filters, as JSON.
const FILTERS: [&str; 24] = [
    r#"{}"#,
    r#"{"module":"WORKER"}"#,
    r#"{"name":"mail"}"#,
    r#"{"name":"none"}"#,
    r#"{"modifier":"m3"}"#,
    r#"{"states":["paused"]}"#,
    r#"{"states":["delayed","ready"]}"#,
    r#"{"tags":["customer:1"]}"#,
    r#"{"tags":["even","customer:1"]}"#,
    r#"{"tags":["customer:1","even"],"name":"mail"}"#,
    r#"{"tags":["customer:1"],"states":["paused"]}"#,
    r#"{"tags":["customer:"]}"#,
    r#"{"error_text":"no. m5"}"#,
    r#"{"error_text":"NO"}"#,
    r#"{"value_text":"\"id\":\"1\""}"#,
    r#"{"value":{"path":["customer","id"],"equals":"1"}}"#,
    r#"{"value":{"path":["customer","id"],"equals":1}}"#,
    r#"{"value":{"path":["lines","-1"],"equals":3.0}}"#,
    r#"{"value":{"path":[],"equals":null}}"#,
    r#"{"emitted_since":"2020-01-01T00:00:00Z","due_before":"9999-01-01T00:00:00Z"}"#,
    r#"{"emitted_before":"2020-01-01T00:00:00Z"}"#,
    r#"{"died_since":"2020-01-01T00:00:00Z","died_before":"9999-01-01T00:00:00Z"}"#,
    // Of `no. #`, which all of `fails` died of after their retries.
    r#"{"error_group":"a8f12872-0715-8a73-b4bb-9cb6a0a79a9b"}"#,
    r#"{"error_group":"a8f12872-0715-8a73-b4bb-9cb6a0a79a9b","tags":["even"],"modifier":"m2"}"#,
];

/// Of the handlers, by the events' numbers.
const NAMES: [&str; 3] = ["mail", "ship", "fails"];

/// Twelve events of each tenant, of which a third is paused, a third delayed and a third dies.
async fn fill(kit: &mut TestKit) -> Vec<EventId> {
    let mut handlers = Handlers::new();
    for number in 0..12 {
        let once = RetryPolicy { retries: 0, ..RetryPolicy::default() };
        let route = Route::new(NAMES[number % 3]).modifier(&format!("m{number}")).retry(once);
        handlers = handlers.on(route, move |_event| async move {
            if number % 3 == 2 { Err(HandlerError::operational(format!("no. m{number}"))) } else { Ok(()) }
        });
    }
    kit.handlers(handlers).unwrap();
    let ada = Actor::user("ada");
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let mail = wakeq::HandlerScope { canvas, ..scope("mail") };
        kit.admin().pause(&mail, &ada, &Stop::default()).await.unwrap();
    }
    let mut ids = Vec::new();
    for number in 0..12 {
        for canvas in [CanvasId::DEFAULT, OTHER] {
            let id = number % 2;
            let value = format!(r#"{{"customer":{{"id":"{id}"}},"lines":[1,{number}]}}"#);
            let event = Event::from_json(NAMES[number % 3], value).unwrap().canvas(canvas);
            let event = event.modifier(&format!("m{number}")).unwrap();
            let event = event.tag(&format!("customer:{}", number % 4)).unwrap();
            let event = if number % 2 == 0 { event.tag("even").unwrap() } else { event };
            let event =
                if number % 3 == 1 { event.after(Duration::from_secs(86_400)).unwrap() } else { event };
            ids.push(kit.emit(event).await.unwrap().id);
        }
    }
    kit.drain().await.unwrap();
    ids
}

/// What a filter selects of a canvas, as modifiers and tags, in pages of two; and the counts.
async fn selected(kit: &TestKit, canvas: CanvasId, filter: &EventFilter) -> (Vec<String>, Vec<String>) {
    let (mut live, mut dead) = (Vec::new(), Vec::new());
    let mut cursor: Option<Cursor> = None;
    loop {
        let page = kit.admin().events(canvas, filter, cursor.as_ref(), 2).await.unwrap();
        assert!(page.items.len() <= 2 && page.looked_at >= page.items.len() as u64);
        live.extend(page.items.iter().map(|event| format!("{} {:?}", event.address.modifier, event.tags)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    loop {
        let page = kit.admin().search_dead(canvas, filter, cursor.as_ref(), 2).await.unwrap();
        assert!(page.items.len() <= 2 && page.looked_at >= page.items.len() as u64);
        dead.extend(page.items.iter().map(|event| {
            let tags = event.options.as_ref().map(|options| options.tags().to_vec()).unwrap_or_default();
            format!("{} {tags:?}", event.address.modifier)
        }));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let counted = kit.admin().count_events(canvas, filter, None).await.unwrap();
    let is_live = filter.states != [EventState::Dead];
    assert_eq!(counted.count, if is_live { live.len() } else { dead.len() } as u64);
    assert_eq!(counted.next, None);
    // Events that died at once have no order in common.
    dead.sort();
    (live, dead)
}

#[tokio::test]
async fn a_filter_selects_the_same_events_on_both() {
    let (_stage, mut real) = on_postgres().await;
    let mut memory = TestKit::new();
    fill(&mut real).await;
    fill(&mut memory).await;
    let mut found = 0;
    for json in FILTERS {
        let filter: EventFilter = serde_json::from_str(json).unwrap();
        let expected = selected(&real, CanvasId::DEFAULT, &filter).await;
        assert_eq!(selected(&memory, CanvasId::DEFAULT, &filter).await, expected, "{json}");
        assert_eq!(selected(&real, OTHER, &filter).await, expected, "{json}: of the other tenant");
        found += expected.0.len() + expected.1.len();
    }
    assert!(found > 60, "{found} events");
    let dead = EventFilter { states: vec![EventState::Dead], ..EventFilter::default() };
    assert_eq!(selected(&memory, CanvasId::DEFAULT, &dead).await.1.len(), 4);
    let group = ErrorGroupId::of(&scope("fails"), "retries", Some("no. m5"));
    let group = EventFilter { error_group: Some(group), ..dead };
    assert!(group.json().contains("a8f12872-0715-8a73-b4bb-9cb6a0a79a9b"), "as the filters name it");
    assert_eq!(selected(&memory, CanvasId::DEFAULT, &group).await.1.len(), 4);
    let elsewhere = CanvasId(uuid::Uuid::from_u128(0x5ea));
    let all = EventFilter::default();
    assert_eq!(selected(&real, elsewhere, &all).await, (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn tags_are_replaced_on_both() {
    let (_stage, mut real) = on_postgres().await;
    let mut memory = TestKit::new();
    for kit in [&mut real, &mut memory] {
        let ids = fill(kit).await;
        let (admin, ada) = (kit.admin().clone(), Actor::user("ada"));
        let tags: Vec<Tag> = vec!["new".parse().unwrap(), "new".parse().unwrap()];
        // One that is paused, one that is delayed, and a dead one; of each pair the first is ours.
        for id in [ids[0], ids[2], ids[4]] {
            admin.set_tags(CanvasId::DEFAULT, id, &tags, &ada).await.unwrap();
        }
        let foreign = admin.set_tags(CanvasId::DEFAULT, ids[1], &tags, &ada).await;
        assert!(matches!(foreign, Err(AdminError::NotFound(_))), "{foreign:?}");
        let many: Vec<Tag> = (0..11).map(|number| format!("n:{number}").parse().unwrap()).collect();
        let refused = admin.set_tags(CanvasId::DEFAULT, ids[0], &many, &ada).await;
        assert!(matches!(refused, Err(AdminError::Invalid(_))), "{refused:?}");
        let new = EventFilter { tags: tags[..1].to_vec(), ..EventFilter::default() };
        let (live, dead) = selected(kit, CanvasId::DEFAULT, &new).await;
        assert_eq!((live.len(), dead.len()), (2, 1));
        assert_eq!(selected(kit, OTHER, &new).await, (Vec::new(), Vec::new()));
        // A redrive keeps the tags.
        admin.redrive_one(CanvasId::DEFAULT, ids[4], &ada).await.unwrap();
        assert_eq!(selected(kit, CanvasId::DEFAULT, &new).await.0.len(), 3);
        admin.set_tags(CanvasId::DEFAULT, ids[4], &[], &ada).await.unwrap();
        assert_eq!(selected(kit, CanvasId::DEFAULT, &new).await.0.len(), 2);
    }
}

/// A handler sees the tags of its event.
#[tokio::test]
async fn a_handler_sees_the_tags() {
    let mut kit = TestKit::new();
    let handlers = Handlers::new().on("ship", |event: wakeq::Execution| async move {
        let tags: Vec<&str> = event.tags().iter().map(Tag::as_str).collect();
        if tags == ["customer:7", "express"] {
            Ok(())
        } else {
            Err(HandlerError::operational(tags.join(",")))
        }
    });
    kit.handlers(handlers).unwrap();
    let event = Event::new("ship", &1).unwrap().tag("customer:7").unwrap().tag("express").unwrap();
    kit.emit(event.tag("express").unwrap()).await.unwrap();
    assert_eq!(kit.drain().await.unwrap().completed, 1);
}
