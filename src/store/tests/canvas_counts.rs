//! Counts of a canvas: what is read for them, what is left out, and that none is of another canvas.

use std::time::Duration;

use uuid::Uuid;

use super::Table;
use super::cost::{buffers, plan};
use crate::event::CanvasId;
use crate::store::{CanvasCounts, CountBounds, HandlerCounts};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));
const RECENTLY: Duration = Duration::from_secs(3600);

/// Events of fifty handlers on each of two canvases, of which every third is not due yet, and dead
/// ones of five of them.
const EVENTS: &str =
    "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
     select gen_random_uuid(), c.id::uuid, 'WORKER', 'h' || n % 50, '_', '1',
            now() + case when n % 3 = 0 then interval '1 h' else n * interval '-1 ms' end
       from generate_series(1, 20000) n,
            (values ('00000000-0000-0000-0000-000000000000'), ('00000000-0000-0000-0000-000000000007')) c (id)";
const DEAD: &str =
    "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause)
     select gen_random_uuid(), c.id::uuid, 'WORKER', 'h' || n % 5, '_', '1', 2, now(), 3, 0, 'retries'
       from generate_series(1, 2000) n,
            (values ('00000000-0000-0000-0000-000000000000'), ('00000000-0000-0000-0000-000000000007')) c (id)";

impl Table {
    async fn all_counted(&self, canvas: CanvasId, bounds: CountBounds) -> CanvasCounts {
        self.store.canvas_counts(canvas, RECENTLY, bounds).await.unwrap()
    }
}

fn names(counts: &[HandlerCounts]) -> Vec<&str> {
    counts.iter().map(|one| one.scope.name.as_str()).collect()
}

#[tokio::test]
async fn each_index_is_read_once() {
    let table = Table::of_one_connection().await;
    table.run(EVENTS).await;
    table.run(DEAD).await;
    table.run("vacuum (analyze) wakeq.events_v2").await;
    table.run("vacuum (analyze) wakeq.dead_events").await;
    let CanvasCounts { totals, busy, .. } =
        table.all_counted(CanvasId::DEFAULT, CountBounds::default()).await;
    assert_eq!((totals.handlers, totals.due, totals.delayed, totals.dead), (50, 13_334, 6_666, 2_000));
    assert_eq!((busy.len(), totals.halted, totals.is_capped), (50, 0, false));
    let oldest = busy.iter().filter_map(|one| one.counts.oldest_due).min();
    assert!(totals.oldest_due.is_some() && totals.oldest_due == oldest);
    let arguments = format!("'{}', '1 h', 2000000, 100000, 4000, 50", CanvasId::DEFAULT);
    let plan = plan(&table.store, "with shown as materialized", &arguments).await;
    for (index, rows) in [("events_v2_handler", 20_000), ("dead_events_handler", 2_000)] {
        let scan = format!("Index Only Scan using {index}");
        assert_eq!(plan.matches(&scan).count(), 1, "{plan}");
        let line = plan.lines().find(|line| line.contains(&scan)).unwrap();
        assert!(line.contains(&format!("rows={rows} loops=1")), "{plan}");
        assert!(buffers(&plan, &scan) < 1_000, "{plan}");
    }
    assert!(!plan.contains("Seq Scan on events_v2") && !plan.contains("Seq Scan on dead_events"), "{plan}");
}

#[tokio::test]
async fn counts_beyond_a_bound_say_so() {
    let table = Table::new().await;
    table.run(EVENTS).await;
    table.run(DEAD).await;
    let bounds = CountBounds { events: 19_999, busy: 3, ..CountBounds::default() };
    let some = table.all_counted(OTHER, bounds).await;
    assert!(some.totals.is_capped && some.busy.len() == 3, "{some:?}");
    assert_eq!(some.totals.due + some.totals.delayed, 19_999);
    // They have most events, as these died.
    let mut busiest: Vec<_> = some.busy.iter().map(|one| one.counts.scope.name.as_str()).collect();
    busiest.sort_unstable();
    assert!(busiest.iter().all(|name| ["h0", "h1", "h2", "h3", "h4"].contains(name)), "{busiest:?}");
    let all = table.all_counted(OTHER, CountBounds { events: 20_001, ..bounds }).await;
    assert!(!all.totals.is_capped && all.totals.handlers == 50, "{all:?}");
}

/// Rules, one of them over, unknown handlers and halted lanes of both canvases, and copies that are
/// shown or hidden. A handler that has nothing else is none for being unknown.
const OF_HANDLERS: [&str; 4] = [
    "insert into wakeq.scheduling_rules (rule_type, canvas_id, event_space, handler_name, until)
     values ('pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'h7', null),
            ('block', '00000000-0000-0000-0000-000000000000', 'WORKER', 'h7', null),
            ('pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'idle', null),
            ('pause', '00000000-0000-0000-0000-000000000000', 'WORKER', 'over', now() - interval '1 h'),
            ('pause', '00000000-0000-0000-0000-000000000000', 'CANVAS', '_', null),
            ('pause', '00000000-0000-0000-0000-000000000007', 'WORKER', 'h8', null)",
    "insert into wakeq.unknown_handlers (canvas_id, module, name, modifier, last_seen)
     values ('00000000-0000-0000-0000-000000000000', 'WORKER', 'h9', 'a', now()),
            ('00000000-0000-0000-0000-000000000000', 'WORKER', 'h9', 'b', now()),
            ('00000000-0000-0000-0000-000000000000', 'WORKER', 'gone', '_', now()),
            ('00000000-0000-0000-0000-000000000000', 'WORKER', 'h10', '_', now() - interval '2 h'),
            ('00000000-0000-0000-0000-000000000007', 'WORKER', 'h11', '_', now())",
    "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
     values ('00000000-0000-0000-0000-000000000000', 'o1', 'WORKER', 'h1', gen_random_uuid(), 1, 0),
            ('00000000-0000-0000-0000-000000000000', 'o2', 'WORKER', 'halts', gen_random_uuid(), 1, 0),
            ('00000000-0000-0000-0000-000000000007', 'o1', 'WORKER', 'h1', gen_random_uuid(), 1, 0)",
    "update wakeq.events_v2 set queue = case when name = 'h1' then 'shown' else 'hidden' end, origin = gen_random_uuid()
      where name in ('h1', 'h2')",
];

#[tokio::test]
async fn stopped_and_unknown_handlers_are_those_of_the_canvas() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.queues (name, created_by, updated_by, tenant_visible)
             values ('shown', 'tests', 'tests', true), ('hidden', 'tests', 'tests', false)",
        )
        .await;
    table.run(EVENTS).await;
    for statement in OF_HANDLERS {
        table.run(statement).await;
    }
    let counts = table.all_counted(CanvasId::DEFAULT, CountBounds::default()).await;
    // Without `h2`, whose events are all hidden, and with `idle` and `halts`.
    let totals = counts.totals;
    assert_eq!((totals.handlers, totals.stopped, totals.unknown, totals.halted), (51, 2, 1, 2));
    assert_eq!((totals.due + totals.delayed, totals.stopped_due), (19_600, 267));
    assert_eq!((names(&counts.stopped), names(&counts.unknown)), (vec!["h7", "idle"], vec!["h9"]));
    let stopped = counts.busy.iter().filter(|one| one.is_stopped).map(|one| one.counts.clone());
    let mut stopped: Vec<_> = stopped.collect();
    stopped.sort_by_key(|one| one.scope.clone());
    assert_eq!(stopped, counts.stopped, "each list has the same counts");
    let first =
        table.all_counted(CanvasId::DEFAULT, CountBounds { listed: 1, ..CountBounds::default() }).await;
    assert_eq!((names(&first.stopped), first.totals.stopped), (vec!["h7"], 2));

    let others = table.all_counted(OTHER, CountBounds::default()).await;
    assert_eq!((others.totals.handlers, others.totals.halted), (49, 1));
    assert_eq!((names(&others.stopped), names(&others.unknown)), (vec!["h8"], vec!["h11"]));
    assert_eq!(
        table.all_counted(CanvasId(Uuid::from_u128(8)), CountBounds::default()).await,
        CanvasCounts::default()
    );
}
