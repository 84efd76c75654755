//! Searches of kept events in the kit's tables against Postgres: the same events are found on both,
//! page by page; and another tenant's are others.

use std::time::Duration;

use wakeq::control::Cursor;
use wakeq::events::{EndedFilter, EndedOutcome, Keep};
use wakeq::testing::TestKit;
use wakeq::workers::Completion;
use wakeq::{
    Actor, AdminError, CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, Route, Timestamp,
};

use super::on_postgres;
use crate::support::{OTHER, scope};

const HOUR: Duration = Duration::from_secs(3600);

/// Fails for every third number, and else returns a receipt of an even number only.
async fn work(event: Execution) -> HandlerResult<Completion> {
    let number: u32 = event.value::<(String, u32)>()?.1;
    match number {
        number if number % 3 == 2 => Err(HandlerError::value(format!("no. {number}"))),
        number if number % 2 == 0 => Completion::with_result(&format!("receipt {number}")),
        _ => Ok(Completion::default()),
    }
}

/// Twelve events of each tenant, of which the last is cancelled.
async fn fill(kit: &mut TestKit) {
    let mut handlers = Handlers::new();
    for number in 0..12 {
        let name = if number < 6 { "mail" } else { "ship" };
        let route = Route::new(name).modifier(&format!("m{number}")).keep(Keep::all(24 * HOUR));
        handlers = handlers.on(route, work);
    }
    kit.handlers(handlers).unwrap();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let batch = kit.queue().batch("import:42").unwrap().canvas(canvas);
        batch.open(Event::new("imported", &1).unwrap().canvas(canvas)).await.unwrap();
    }
    for number in 0..12_u32 {
        for canvas in [CanvasId::DEFAULT, OTHER] {
            let name = if number < 6 { "mail" } else { "ship" };
            let event = Event::new(name, &(format!("customer {}", number % 2), number)).unwrap();
            let event = event.canvas(canvas).modifier(&format!("m{number}")).unwrap();
            let event = event.tag(&format!("customer:{}", number % 4)).unwrap();
            let event = if number % 2 == 0 { event.tag("even").unwrap() } else { event };
            let event = if number == 3 { event.batch("import:42").unwrap() } else { event };
            let event = if number == 4 { event.on("work:1").unwrap() } else { event };
            if number == 11 {
                let late = event.keep(HOUR).unwrap().after(24 * HOUR).unwrap();
                let id = kit.emit(late).await.unwrap().id;
                kit.admin().cancel(canvas, id, &Actor::user("ada")).await.unwrap();
            } else {
                kit.emit(event).await.unwrap();
                kit.drain().await.unwrap();
            }
        }
    }
}

/// The modifiers of what a filter selects, in pages of two, sorted; and the count agrees.
async fn selected(kit: &TestKit, filter: &EndedFilter) -> Vec<String> {
    let (mut found, mut cursor, mut last) = (Vec::new(), None::<Cursor>, None::<Timestamp>);
    loop {
        let page = kit.admin().ended(filter, cursor.as_ref(), 2).await.unwrap();
        assert!(page.items.len() <= 2 && page.looked_at >= page.items.len() as u64);
        for event in page.items {
            assert!(last.is_none_or(|last| event.ended_at <= last), "the latest come first");
            last = Some(event.ended_at);
            found.push(event.address.modifier.to_string());
        }
        // As a caller sends it back.
        cursor = page.next.map(|next| next.to_string().parse().unwrap());
        if cursor.is_none() {
            break;
        }
    }
    let counted = kit.admin().count_ended(filter, None).await.unwrap();
    assert_eq!((counted.count, counted.next), (found.len() as u64, None));
    found.sort_by_key(|modifier| modifier[1..].parse::<u32>().unwrap());
    found
}

/// Filters of a canvas, and the numbers of what they select.
fn filters(canvas: CanvasId) -> Vec<(EndedFilter, Vec<u32>)> {
    let all = || EndedFilter { canvas, ..EndedFilter::default() };
    let of_ship = Some(wakeq::HandlerScope { canvas, ..scope("ship") });
    let tagged = |tags: &[&str]| tags.iter().map(|tag| tag.parse().unwrap()).collect::<Vec<_>>();
    let past = Timestamp::from_timestamp(1_000_000_000, 0);
    let value = |text: &str| Some(text.parse().unwrap());
    let text = |text: &str| Some(text.parse().unwrap());
    vec![
        (all(), (0..12).collect()),
        (EndedFilter { scope: of_ship.clone(), ..all() }, (6..12).collect()),
        (EndedFilter { outcome: Some(EndedOutcome::Failed), ..all() }, vec![2, 5, 8]),
        (EndedFilter { outcome: Some(EndedOutcome::Cancelled), scope: of_ship.clone(), ..all() }, vec![11]),
        (EndedFilter { modifier: Some("m3".parse().unwrap()), ..all() }, vec![3]),
        (EndedFilter { tags: tagged(&["customer:1"]), ..all() }, vec![1, 5, 9]),
        (EndedFilter { tags: tagged(&["customer:2", "even"]), scope: of_ship, ..all() }, vec![6, 10]),
        (EndedFilter { tags: tagged(&["customer:"]), ..all() }, vec![]),
        (EndedFilter { batch: Some("import:42".parse().unwrap()), ..all() }, vec![3]),
        (EndedFilter { batch: Some("import:4".parse().unwrap()), ..all() }, vec![]),
        (EndedFilter { object: Some("work:1".parse().unwrap()), ..all() }, vec![4]),
        (EndedFilter { error_text: text("no. 5"), ..all() }, vec![5]),
        (EndedFilter { error_text: text("NO"), ..all() }, vec![]),
        (EndedFilter { value_text: text("customer 1"), ..all() }, vec![1, 3, 5, 7, 9, 11]),
        (EndedFilter { value: value("$[1] = 7"), ..all() }, vec![7]),
        (EndedFilter { result_text: text("receipt"), ..all() }, vec![0, 4, 6, 10]),
        (EndedFilter { result: value(r#"$ = "receipt 6""#), ..all() }, vec![6]),
        (EndedFilter { result: value("$ = null"), ..all() }, vec![]),
        (EndedFilter { ended_since: past, emitted_since: past, ..all() }, (0..12).collect()),
        (EndedFilter { ended_before: past, ..all() }, vec![]),
        (EndedFilter { emitted_before: past, ..all() }, vec![]),
    ]
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_search_finds_the_same_kept_events_on_both() {
    let (_stage, mut real) = on_postgres().await;
    let mut memory = TestKit::new();
    for kit in [&mut real, &mut memory] {
        fill(kit).await;
        for canvas in [CanvasId::DEFAULT, OTHER] {
            for (filter, numbers) in filters(canvas) {
                let expected: Vec<String> = numbers.iter().map(|number| format!("m{number}")).collect();
                assert_eq!(selected(kit, &filter).await, expected, "{filter:?}");
            }
        }
        let elsewhere = CanvasId(uuid::Uuid::from_u128(0x5ea));
        let elsewhere = EndedFilter { canvas: elsewhere, ..EndedFilter::default() };
        assert!(selected(kit, &elsewhere).await.is_empty());
        let tags = (0..11).map(|number| format!("n:{number}").parse().unwrap()).collect();
        let many = EndedFilter { tags, ..EndedFilter::default() };
        let refused = kit.admin().ended(&many, None, 10).await;
        assert!(matches!(refused, Err(AdminError::Invalid(_))), "{refused:?}");
        let of_dead: Cursor = "d~1~00000000000000000000000000000000".parse().unwrap();
        let refused = kit.admin().count_ended(&EndedFilter::default(), Some(&of_dead)).await;
        assert!(matches!(refused, Err(AdminError::Cursor)), "{refused:?}");
    }
}
