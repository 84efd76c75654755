//! Tags and filters in Postgres: which rows they read, that a page is bounded also by the bytes of
//! values, and that the rows of tags follow their events.

use std::sync::Arc;

use super::cost::{buffers, plan};
use super::{Table, limits, told};
use crate::event::{CanvasId, Event, EventFilter, NewEvent, Traceparent};

fn event(draft: Event) -> Arc<NewEvent> {
    Arc::new(draft.checked(CanvasId::DEFAULT, usize::MAX, |_| Traceparent::root()).unwrap())
}

fn tagged(tag: &str) -> EventFilter {
    EventFilter { tags: vec![tag.parse().unwrap()], ..EventFilter::default() }
}

/// An event without tags has no row for them. Those of a tagged one move with it and go with it,
/// and those of another tenant stay.
#[tokio::test]
async fn tags_are_rows_that_follow_their_event() {
    let table = Table::of_one_connection().await;
    let all = "select count(*) from wakeq.event_tags";
    let plain: Vec<_> = (0..100).map(|number| event(Event::new("known", &number).unwrap())).collect();
    table.store.insert(&plain).await.unwrap();
    assert_eq!(table.number(all).await, 0);
    let draft = || Event::new("known", &1).unwrap().tag("a").unwrap().tag("b").unwrap();
    let ours = event(draft());
    let theirs = event(draft().canvas(CanvasId(uuid::Uuid::from_u128(7))));
    table.store.insert(&[ours.clone(), theirs]).await.unwrap();
    assert_eq!(table.number(all).await, 4);
    let claim = table.store.claim(&told(&[ours.id]), &limits()).await.unwrap().remove(0).unwrap().claim;
    assert_eq!(table.number(all).await, 4, "a claim leaves them");
    table.run("update wakeq.events_v2 set delay_until = delay_until + interval '1 hour'").await;
    let in_place = "select count(*) from wakeq.event_tags t join wakeq.events_v2 e
                        on e.id = t.event_id and e.canvas_id = t.canvas_id and e.delay_until = t.delay_until";
    assert_eq!(table.number(in_place).await, 4);
    assert_eq!(table.store.complete(&[claim]).await.unwrap(), [true]);
    assert_eq!((table.number(all).await, table.number(in_place).await), (2, 2));
    table.run("update wakeq.events_v2 set options = null where options is not null").await;
    assert_eq!(table.number(all).await, 0);
}

/// Of a table that was never analyzed, too, the end of an event reads the rows of its own tags.
#[tokio::test]
async fn the_end_of_an_event_reads_only_its_own_tags() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1',
                    '{\"tags\": [\"a\", \"b\"]}'
               from generate_series(1, 2000)",
        )
        .await;
    let mut transaction = table.pool.begin().await.unwrap();
    sqlx::query("delete from wakeq.events_v2 where id = (select id from wakeq.events_v2 limit 1)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let read: i64 = sqlx::query_scalar(
        "select idx_tup_fetch::int8 from pg_stat_xact_user_tables
          where schemaname = 'wakeq' and relname = 'event_tags'",
    )
    .fetch_one(&mut *transaction)
    .await
    .unwrap();
    assert_eq!(read, 2);
}

/// A page by a tag is a range of the key, in a generic plan as well, whatever the statistics.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_tag_is_found_by_its_index() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options)
             select gen_random_uuid(), case n % 2 when 0 then '00000000-0000-0000-0000-000000000000'
                        else '00000000-0000-0000-0000-000000000007' end::uuid, 'WORKER', 'h' || n % 5, '_', '1',
                    jsonb_build_object('tags', jsonb_build_array('all', 'half:' || n % 50000))
               from generate_series(1, 100000) n",
        )
        .await;
    let rare = tagged("half:42");
    let found = table.store.events(CanvasId::DEFAULT, &rare, true, None, (101, 101)).await.unwrap();
    assert_eq!((found.len(), found[0].tags.len()), (2, 2));
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let set = sqlx::query("select set_config('plan_cache_mode', $1, false)").bind(mode);
        table.store.session().await.unwrap().execute("set", set).await.unwrap();
        for (tag, look, pages) in [("half:42", 10_000, 600), ("all", 101, 2500), ("none", 10_000, 400)] {
            let arguments = format!(
                "'{}', {look}, '1 min', '{}', 101, true, false, null, null, '', '', null, '{}', '{tag}'",
                CanvasId::DEFAULT,
                tagged(tag).json(),
                CanvasId::DEFAULT
            );
            let plan = plan(&table.store, "wakeq.tagged_events(", &arguments).await;
            println!("the tag {tag}, {mode}: {} pages", buffers(&plan, ""));
            assert!(buffers(&plan, "") < pages, "{plan}");
        }
    }
}

/// A page by an object or a batch is a range of its index, of events and of dead ones, whatever the
/// statistics.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_object_and_a_batch_are_found_by_their_indexes() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value)
             select '00000000-0000-0000-0000-000000000000', name, gen_random_uuid(), 'WORKER', 'e', '_', '1'
               from unnest(array['many', 'few']) as name",
        )
        .await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev, options)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || n % 5, '_', '1',
                    case when n % 2 = 0 then 'many' when n % 10001 = 0 then 'few' end, case when n % 2 = 0 or n % 10001 = 0 then n end,
                    case when n % 2 = 0 or n % 10001 = 0 then n - 1 end,
                    case when n % 2 = 0 then '{\"batch\": \"many\"}'::jsonb when n % 10001 = 0 then '{\"batch\": \"few\"}' end
               from generate_series(1, 40000) n",
        )
        .await;
    table
        .run(
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, cause, object, seq, prev, options)
             select id, canvas_id, module, name, modifier, value, 1, enqueued_at, 1, 0, 'retries', object, seq, prev, options
               from wakeq.events_v2",
        )
        .await;
    for filter in [r#"{"object":"few"}"#, r#"{"batch":"few"}"#] {
        let filter: EventFilter = serde_json::from_str(filter).unwrap();
        let live = table.store.events(CanvasId::DEFAULT, &filter, true, None, (101, 101)).await.unwrap();
        let dead = table.store.search_dead(CanvasId::DEFAULT, &filter, true, None, (101, 101)).await.unwrap();
        assert_eq!((live.len(), dead.len()), (2, 2));
    }
    let nobody = "00000000-0000-0000-0000-000000000000";
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let set = sqlx::query("select set_config('plan_cache_mode', $1, false)").bind(mode);
        table.store.session().await.unwrap().execute("set", set).await.unwrap();
        for (of, after, dead) in [
            ("object", "-1".to_owned(), "d.object = $10::text"),
            ("batch", format!("'{nobody}'"), "d.options ->> 'batch' = $10::text"),
        ] {
            for (name, look, pages) in [("few", 10_000, 600), ("many", 101, 2500), ("none", 10_000, 400)] {
                let filter = format!(r#"{{"{of}":"{name}"}}"#);
                let live = format!(
                    "'{nobody}', {look}, '1 min', '{filter}', 101, true, false, null, null, '{name}', {after}"
                );
                let plan_of_live = plan(&table.store, &format!("wakeq.events_of_{of}("), &live).await;
                assert!(buffers(&plan_of_live, "") < pages, "{plan_of_live}");
                let gone = format!(
                    "'{nobody}', {look}, '{filter}', 101, true, false, null,
                     'ffffffff-ffff-ffff-ffff-ffffffffffff', null, '{name}'"
                );
                let plan_of_dead = plan(&table.store, dead, &gone).await;
                assert!(buffers(&plan_of_dead, "") < pages, "{plan_of_dead}");
            }
        }
    }
}

/// Up to a number and on from there, without what another tenant has of the same.
#[tokio::test]
async fn events_of_a_handler_and_of_a_tag_are_counted_in_their_index() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options)
             select gen_random_uuid(), case n % 2 when 0 then '00000000-0000-0000-0000-000000000000'
                        else '00000000-0000-0000-0000-000000000007' end::uuid, 'WORKER', 'h' || n % 5, '_', '1',
                    jsonb_build_object('tags', jsonb_build_array('all'))
               from generate_series(1, 100) n",
        )
        .await;
    let of_handler = EventFilter { name: Some("h3".parse().unwrap()), ..EventFilter::default() };
    for (filter, count) in
        [(EventFilter::default(), 50), (of_handler, 10), (tagged("all"), 50), (tagged("none"), 0)]
    {
        assert!(filter.is_counted_by_index());
        let (mut counted, mut after) = (0, None);
        loop {
            let page = table
                .store
                .count_by_index(CanvasId::DEFAULT, &filter, true, after.as_ref(), 7)
                .await
                .unwrap();
            assert!(page.looked_at <= 7 && page.count == page.looked_at, "{page:?}");
            assert_eq!(page.last.is_some(), page.looked_at == 7, "{page:?}");
            counted += page.count;
            after = page.last;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(counted, count, "{filter:?}");
    }
    let two =
        EventFilter { tags: vec!["all".parse().unwrap(), "b".parse().unwrap()], ..EventFilter::default() };
    assert!(!two.is_counted_by_index(), "an index has one tag of an event");
    let state = EventFilter { states: vec![crate::event::EventState::Ready], ..EventFilter::default() };
    assert!(!state.is_counted_by_index());
}

/// Values of 1 MiB: a page looks into 32 of them, and says so.
#[tokio::test]
async fn a_page_looks_into_a_limited_number_of_bytes() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'h', '_',
                    '\"' || repeat('x', 1048574) || '\"'
               from generate_series(1, 40)",
        )
        .await;
    let within = EventFilter { value_text: Some("y".parse().unwrap()), ..EventFilter::default() };
    let looked = table.store.events(CanvasId::DEFAULT, &within, true, None, (1000, 101)).await.unwrap();
    let [last] = looked.as_slice() else { panic!("{looked:?}") };
    assert_eq!((last.is_meant, last.number, last.last), (false, 32, Some(true)));
    let all = EventFilter { modifier: Some("x".parse().unwrap()), ..EventFilter::default() };
    let looked = table.store.events(CanvasId::DEFAULT, &all, true, None, (1000, 101)).await.unwrap();
    assert_eq!((looked.len(), looked[0].number, looked[0].last), (1, 40, Some(false)), "values are not read");
}

/// An event is found by each of ten tags, and not by those of another tenant, which has the same.
#[tokio::test]
async fn an_event_is_found_by_each_of_ten_tags() {
    let table = Table::new().await;
    let other = CanvasId(uuid::Uuid::from_u128(7));
    for canvas in [CanvasId::DEFAULT, other] {
        let draft = (0..10).fold(Event::new("known", &1).unwrap(), |draft, number| {
            draft.tag(&format!("n:{number}")).unwrap()
        });
        table.store.insert(&[event(draft.canvas(canvas))]).await.unwrap();
    }
    table
        .run(
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, cause, options)
             select gen_random_uuid(), canvas_id, module, name, modifier, value, 1, enqueued_at, 1, 0, 'retries', options
               from wakeq.events_v2",
        )
        .await;
    for number in 0..10 {
        let filter = tagged(&format!("n:{number}"));
        let live = table.store.events(CanvasId::DEFAULT, &filter, true, None, (100, 100)).await.unwrap();
        assert_eq!((live.len(), live[0].tags.len(), live[0].is_meant), (1, 10, true), "{number}");
        assert_eq!(live[0].address.scope.canvas, CanvasId::DEFAULT);
        let dead = table.store.search_dead(CanvasId::DEFAULT, &filter, true, None, (100, 100)).await.unwrap();
        assert_eq!((dead.len(), dead[0].is_meant, dead[0].last), (1, true, Some(false)), "{number}");
        let found = table.store.dead_of(other, &[dead[0].id]).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
    let none = table.store.events(other, &tagged("n:10"), true, None, (100, 100)).await.unwrap();
    assert!(none.is_empty(), "{none:?}");
}
