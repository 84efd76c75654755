//! Lists, page by page, the depth, and that nothing crosses canvases.

use std::collections::BTreeSet;

use wakeq::control::{Cursor, DeadFilter, EventFilter, EventState, EventSummary, Explanation, RuleKind};
use wakeq::machine::CheckResult;
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, HandlerScope, Stop};

use crate::support::{OTHER, Stage, scope};

/// Every page of a list, with cursors as text; a page never exceeds `limit`.
async fn all_events(stage: &Stage, filter: &EventFilter, limit: u32) -> Vec<EventSummary> {
    let (mut found, mut cursor): (Vec<EventSummary>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = stage.admin.events(CanvasId::DEFAULT, filter, cursor.as_ref(), limit).await.unwrap();
        assert!(page.items.len() <= limit as usize);
        found.extend(page.items);
        match page.next {
            Some(next) => cursor = Some(next.to_string().parse().unwrap()),
            None => return found,
        }
    }
}

/// Rows with due times, locks and rules on either side of every condition, beside those of another
/// canvas.
async fn varied(stage: &Stage) {
    for name in ["paused", "both"] {
        stage.admin.pause(&scope(name), &Actor::user("ada"), &Stop::default()).await.unwrap();
    }
    for name in ["blocked", "both"] {
        stage.admin.block(&scope(name), &Actor::admin("ops"), &Stop::default()).await.unwrap();
    }
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims)
               select gen_random_uuid(), canvas, module, name, '_', '1', now() + due * interval '1 s', now() + locked * interval '1 s', 1
                 from unnest(array['00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000007']::uuid[]) canvas,
                      unnest(array['AAA', 'WORKER', 'x']) module, unnest(array['free', 'paused', 'blocked', 'both', 'Free']) name,
                      unnest(array[-100000, -1, 3600]) due, unnest(array[null, -3600, -50, 3600]) locked";
    stage.execute(sql).await;
    for object in ["moves", "stands"] {
        for _ in 0..2 {
            let event = Event::new("ordered", &1).unwrap().on(object).unwrap();
            stage.queue.emit(event).await.unwrap();
        }
    }
    let sql = "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
               values ('00000000-0000-0000-0000-000000000000', 'stands', 'WORKER', 'ordered', gen_random_uuid(), 1, 0)";
    stage.execute(sql).await;
}

/// Whatever the page size, every event is listed once, in one order; and a state lists exactly the
/// events for which `explain` reports it.
#[tokio::test]
async fn pages_hold_every_event_once_and_states_are_those_of_the_machine() {
    let (stage, _) = Stage::memory().await;
    varied(&stage).await;
    let all = all_events(&stage, &EventFilter::default(), 1000).await;
    assert_eq!(all.len(), 184);
    assert_eq!(all_events(&stage, &EventFilter::default(), 7).await, all);
    let mut seen = 0;
    let [pause, block] = [RuleKind::Pause, RuleKind::Block].map(CheckResult::Held);
    let states = [CheckResult::Ready, CheckResult::Behind, CheckResult::Halted, CheckResult::Delayed];
    for state in states.into_iter().chain([CheckResult::Running, pause, block]) {
        let filter = EventFilter { states: vec![state.into()], ..EventFilter::default() };
        let found = all_events(&stage, &filter, 3).await;
        let meant: Vec<_> = all.iter().filter(|event| event.state == state).cloned().collect();
        assert!(!meant.is_empty());
        assert_eq!(found, meant, "{state:?}");
        seen += found.len();
        let explained = stage.admin.explain(CanvasId::DEFAULT, meant[0].id).await.unwrap();
        let Explanation::Live(live) = explained else { panic!("it is there") };
        assert_eq!((live.state, live.delay_until), (state, meant[0].delay_until));
        assert_eq!(CheckResult::parse(state.as_str()), Some(state));
    }
    assert_eq!(seen, all.len());
}

/// By module, by handler, and by a name alone, which implies the workers' module.
#[tokio::test]
async fn events_are_listed_by_handler() {
    let (stage, _) = Stage::memory().await;
    varied(&stage).await;
    for (module, name, expected) in [
        (Some("AAA"), None, 60),
        (Some("x"), Some("both"), 12),
        (None, Some("free"), 12),
        (Some("y"), None, 0),
    ] {
        let filter = EventFilter {
            module: module.map(|module| module.parse().unwrap()),
            name: name.map(|name| name.parse().unwrap()),
            ..EventFilter::default()
        };
        let found = all_events(&stage, &filter, 5).await;
        assert_eq!(found.len(), expected, "{module:?} {name:?}");
        let meant = |event: &EventSummary| {
            let HandlerScope { canvas, module: its_module, name: its_name } = &event.address.scope;
            *canvas == CanvasId::DEFAULT
                && its_module.as_str() == module.unwrap_or("WORKER")
                && name.is_none_or(|name| its_name.as_str() == name)
        };
        assert!(found.iter().all(meant));
    }
    let page = stage.admin.events(CanvasId::DEFAULT, &EventFilter::default(), None, 1).await.unwrap();
    let elsewhere = EventFilter { module: Some("x".parse().unwrap()), ..EventFilter::default() };
    let refused = stage.admin.events(CanvasId::DEFAULT, &elsewhere, page.next.as_ref(), 1).await;
    assert!(matches!(refused, Err(AdminError::Cursor)), "a cursor belongs to its filter");
}

/// A page scans 10,000 events: with a rare state it may be empty and still have a next one.
#[tokio::test]
async fn a_page_may_be_empty_and_have_a_next_one() {
    let (stage, _) = Stage::memory().await;
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', case when n = 10001 then 'z' else 'a' end, '_', '1',
                      now() + case when n = 10001 then interval '1 h' else '0' end
                 from generate_series(1, 10001) n";
    stage.execute(sql).await;
    let delayed = EventFilter { states: vec![EventState::Delayed], ..EventFilter::default() };
    let first = stage.admin.events(CanvasId::DEFAULT, &delayed, None, 100).await.unwrap();
    assert_eq!(first.items, []);
    let second = stage.admin.events(CanvasId::DEFAULT, &delayed, first.next.as_ref(), 100).await.unwrap();
    assert_eq!((second.items.len(), second.next), (1, None));
    let depth = stage.admin.depth(CanvasId::DEFAULT, None).await.unwrap();
    assert_eq!((depth.depth, depth.capped), (10_000, true));
}

/// Due, on no worker, under no rule; of all handlers or of one.
#[tokio::test]
async fn the_depth_is_what_is_free_to_run() {
    let (stage, _) = Stage::memory().await;
    varied(&stage).await;
    let depth = stage.admin.depth(CanvasId::DEFAULT, None).await.unwrap();
    let ready = EventFilter { states: vec![EventState::Ready], ..EventFilter::default() };
    let ready = all_events(&stage, &ready, 1000).await;
    assert_eq!((depth.depth, depth.capped), (ready.len() as u64, false));
    assert_eq!(depth.oldest_due, ready.iter().map(|event| event.delay_until).min());
    let of = async |name: &str| stage.admin.depth(CanvasId::DEFAULT, Some(&scope(name))).await.unwrap();
    assert_eq!((of("free").await.depth, of("paused").await.depth, of("none").await.depth), (4, 0, 0));
    assert_eq!(of("none").await.oldest_due, None);
}

/// Over all canvases, by handler.
#[tokio::test]
async fn the_depths_are_those_of_all_canvases() {
    let (stage, _) = Stage::memory().await;
    varied(&stage).await;
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
               select gen_random_uuid(), $1, 'WORKER', case when n > 100 then 'free' else 'paused' end, '_', '1',
                      now() - interval '1 day'
                 from generate_series(1, 10100) n";
    sqlx::query(sql).bind(OTHER.0).execute(&stage.pool).await.unwrap();
    let depths = stage.admin.depths().await.unwrap();
    let of = |name| depths.iter().find(|found| found.scope == scope(name)).unwrap().depth;
    // In the other canvas, which has four more, it is not paused.
    assert_eq!((of("paused").depth, of("paused").capped), (104, false));
    let free = of("free");
    assert!(
        (4..10_004).contains(&free.depth) && free.capped,
        "the share of a handler is exhausted: {free:?}"
    );
    assert!(free.oldest_age() > Some(std::time::Duration::from_secs(86_000)));
}

/// Running events of one handler do not hide free ones of another.
#[tokio::test]
async fn many_running_events_do_not_hide_what_is_free() {
    let (stage, _) = Stage::memory().await;
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, locked_at, claims)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER',
                      case when n <= 10001 then 'a' else 'z' end, '_', '1', now() - (20000 - n) * interval '1 ms',
                      case when n <= 10001 then now() end, 1
                 from generate_series(1, 10004) n";
    stage.execute(sql).await;
    let depth = stage.admin.depth(CanvasId::DEFAULT, None).await.unwrap();
    assert_eq!((depth.depth, depth.capped), (3, true), "not all of `a` was looked at");
}

/// Dead events by cursor; redriven and deleted a limited number per call.
#[tokio::test]
async fn the_dead_are_listed_brought_back_and_deleted_in_bounds() {
    let (stage, _) = Stage::memory().await;
    let ada = Actor::user("ada");
    let sql = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause, died_at)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'h', '_', '1', 2, now(), 3, 0, 'retries',
                      now() - (n % 7) * interval '1 s'
                 from generate_series(1, 12001) n";
    stage.execute(sql).await;
    let all = DeadFilter::default();
    let (mut seen, mut cursor, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = stage.admin.dead(&all, cursor.as_ref(), 1000).await.unwrap();
        seen.extend(page.items.iter().map(|dead| dead.id));
        pages += 1;
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!((seen.len(), pages), (12_001, 13));
    let would = stage.admin.redrive(&all, &ada, true).await.unwrap();
    assert_eq!((would.count, would.more), (10_000, true));
    let back = stage.admin.redrive(&all, &ada, false).await.unwrap();
    assert_eq!((back.count, back.more, stage.rows().await), (10_000, true, 10_000));
    let would = stage.admin.delete_dead(&all, &ada, true).await.unwrap();
    assert_eq!((would.count, would.more), (2001, false));
    let gone = stage.admin.delete_dead(&all, &ada, false).await.unwrap();
    assert_eq!((gone.count, gone.more), (2001, false));
    let would = stage.admin.purge(&scope("h"), &ada, true).await.unwrap();
    assert_eq!((would.count, would.more), (10_000, false));
    let gone = stage.admin.purge(&scope("h"), &ada, false).await.unwrap();
    assert_eq!((gone.count, gone.more, stage.rows().await), (10_000, false, 0));
}

/// To every call, an event of another canvas is as if it had never been.
#[tokio::test]
async fn nothing_crosses_canvases() {
    let (stage, _) = Stage::memory().await;
    let (ada, elsewhere) = (Actor::admin("ada"), OTHER);
    let event = Event::new("h", "secret").unwrap().id(EventId::new());
    let id = stage.queue.emit(event).await.unwrap().id;
    let dead = EventId::new();
    let sql = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause)
               values ($1, '00000000-0000-0000-0000-000000000000', 'WORKER', 'h', '_', '\"dead\"', 2, now(), 3, 0, 'retries')";
    sqlx::query(sql).bind(dead.0).execute(&stage.pool).await.unwrap();
    for id in [id, dead, EventId::new()] {
        assert_eq!(stage.admin.explain(elsewhere, id).await.unwrap(), Explanation::Unknown);
        assert_eq!(stage.admin.value(elsewhere, id).await.unwrap(), None);
        for refused in [
            stage.admin.cancel(elsewhere, id, &ada).await,
            stage.admin.run_now(elsewhere, id, &ada).await,
            stage.admin.redrive_one(elsewhere, id, &ada).await,
        ] {
            assert!(matches!(refused, Err(AdminError::NotFound(named)) if named == id), "{refused:?}");
        }
    }
    assert_eq!(stage.admin.events(elsewhere, &EventFilter::default(), None, 10).await.unwrap().items, []);
    assert_eq!(stage.admin.depth(elsewhere, None).await.unwrap().depth, 0);
    assert!(matches!(stage.admin.depth(elsewhere, Some(&scope("h"))).await, Err(AdminError::Invalid(_))));
    assert_eq!(stage.admin.audit(elsewhere, None, 10).await.unwrap().items, []);
    let value = async |id| stage.admin.value(CanvasId::DEFAULT, id).await.unwrap();
    assert_eq!(value(id).await.as_deref(), Some("\"secret\""));
    assert_eq!(value(dead).await.as_deref(), Some("\"dead\""));
    stage.admin.cancel(CanvasId::DEFAULT, id, &ada).await.unwrap();
    assert_eq!(stage.admin.explain(elsewhere, id).await.unwrap(), Explanation::Unknown);
    assert!(matches!(stage.admin.explain(CanvasId::DEFAULT, id).await.unwrap(), Explanation::Gone { .. }));
    stage.admin.redrive_one(CanvasId::DEFAULT, dead, &ada).await.unwrap();
    assert_eq!(stage.rows().await, 1);
}
